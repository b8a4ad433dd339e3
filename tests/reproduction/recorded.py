"""Run folders as the recorder writes them, of runs that never ran."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf
from safetensors.numpy import save_file

from fedsaf.core.identity import config_hash
from fedsaf.core.types import RoundRecord
from fedsaf.reproduction.cell import Cell
from fedsaf.reproduction.experiments import displays
from fedsaf.reproduction.figures.papers import ROLES
from fedsaf.reproduction.selection import weights_of
from fedsaf.tracking.recorder import Recorder

CHOICES = {
    "dataset": "cifar10",
    "partition": "dirichlet_0.1",
    "model_group": "htfe9",
    "method": "fedsaf_gcsa",
    "alignment": "gcsa",
    "prototype": "mean",
    "paper": "fedsaf",
    "protocol": "paper",
}
CONFIG = {
    "seed": 0,
    "scale": "full",
    "stand_in_for": None,
    "diagnostics_every": 5,
    "dataset": {"max_samples": None},
    "feature_dim": 512,
    "num_clients": 20,
    "participation_ratio": 1.0,
    "batch_size": 100,
    "local_epochs": 5,
    "rounds": 300,
    "optimizer": {"lr": 0.01},
    "partition": {"alpha": 0.1, "seed": 1, "generator": "public"},
    "alignment": {"proto_weight": 1.0, "inst_weight": 1.0},
    "prototype": {},
    "results_root": "somewhere",
}
"""The protocol of the FedSAF paper."""
SIZE = 100
"""Test samples of every client, so that hits are percent."""

LINE = ((0, 0, 0.0), (0, 1, 10.0), (1, 0, 1.0), (1, 1, 11.0))
"""Local prototypes on a line, in which classes are near and clients are not."""


def of_scale(scale: str | None, method: str) -> dict[str, Any]:
    """Return what runs of a scale and method have by themselves: length and weights."""
    loss = method.removeprefix("fedsaf_")
    known = loss if loss in ("mse", "cosine", "rcsa") else "gcsa"
    return {"rounds": 60 if scale == "small" else 300, "alignment": dict(weights_of(known, scale or "full"))}


def record_uploads(folder: Path, rows: Sequence[tuple[int, int, float]]) -> None:
    """Write local prototypes of two dimensions as a run keeps them."""
    folder.mkdir(parents=True, exist_ok=True)
    client, label, place = (np.array(column) for column in zip(*rows, strict=True))
    means = np.stack([place, np.zeros_like(place)], axis=1).astype(np.float32)
    tensors = {"client": client.astype(np.int64), "labels": label.astype(np.int64), "means": means}
    save_file(tensors, folder / "uploads_prototypes.safetensors")


def add_plain_rounds(folder: Path, last: int) -> None:
    """Append rounds from 3 on: two clients, no evaluation, bytes and seconds as the median of rounds 1 and 2."""
    timing = {"client": 12.0, "server": 0.5, "evaluation": 1.0, "data": 0.1, "total": 15.0}
    traffic = {"upload_bytes": {"total": 3 * 2**19}, "download_bytes": {"total": 3 * 2**20}}
    rows: dict[str, list[dict[str, Any]]] = {"metrics.jsonl": [], "clients.jsonl": [], "timing.jsonl": []}
    for round in range(3, last + 1):
        rows["metrics.jsonl"].append({"round": round, **traffic})
        rows["clients.jsonl"] += [{"round": round, "client": client} for client in (0, 1)]
        rows["timing.jsonl"].append({"round": round, **timing})
    for name, added in rows.items():
        with (folder / name).open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in added)


def record_run(
    folder: Path,
    hits: int = 60,
    prototype_hits: int | None = None,
    predictor: str = "classifier",
    choices: dict[str, str] | None = None,
    finish: bool = True,
    diagnostics: dict[str, float] | Sequence[dict[str, float]] = (),
    uploads: Sequence[tuple[int, int, float]] = LINE,
    words: Sequence[str] = (),
    whole: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Path:
    """Write the folder of a run that is evaluated in two rounds, the second of which is the best, and then no more.

    Args:
        folder: where.
        hits: correct answers out of 100 after round 2; 10 fewer, but not below 0, after round 1.
        prototype_hits: the same by nearest prototype.
        predictor: the method's own rule.
        choices: choices that differ from FedSAF-GCSA on CIFAR-10.
        finish: whether it finished.
        diagnostics: of round 2, or of both rounds.
        uploads: client, class and first of two coordinates of each local prototype; () for no file.
        words: of the command line.
        whole: a resolved configuration instead of the one here.
        changes: values of the configuration that differ; a dict is merged.
    """
    choices = CHOICES | (choices or {})
    config = json.loads(json.dumps(whole or CONFIG))
    config |= {} if whole else of_scale(changes.get("scale", "full"), choices["method"])
    for key, value in changes.items():
        config[key] = config.get(key, {}) | value if isinstance(value, dict) else value
    if uploads:
        record_uploads(folder, uploads)
    of_round = ({}, diagnostics) if isinstance(diagnostics, Mapping) else diagnostics or ({}, {})
    recorder = Recorder(folder)
    for round, lost in ((1, 10), (2, 0)):
        rules = {"classifier": max(hits - lost, 0)}
        if prototype_hits is not None:
            rules["nearest_prototype"] = max(prototype_hits - lost, 0)
        accuracies = {rule: {"pooled": count / SIZE, "client_mean": count / SIZE} for rule, count in rules.items()}
        metrics = {
            **accuracies,
            "upload_bytes": {"total": round * 2**20},
            "download_bytes": {"total": 3 * 2**20},
            "diagnostics": of_round[round - 1],
        }
        clients = [
            {"client": i, "architecture": f"net{i}", "num_test": SIZE, "diagnostics/margin_mean": 1.0 + i}
            | {rule: max(count + sign * i, 0) / SIZE for rule, count in rules.items()}
            for i, sign in enumerate((1, -5))
        ]
        timing = {"client": 8.0 * round, "server": 0.5, "evaluation": 1.0, "data": 0.1, "total": 10.0 * round}
        recorder.append(RoundRecord(round, metrics, clients, timing))
    add_plain_rounds(folder, config["rounds"])
    content = {**config, "choices": choices, "overrides": list(words)}
    OmegaConf.save(content, folder / "config.yaml")
    if finish:
        recorder.summarise(config_hash(config), "p", {"predictor": predictor})
        recorder.status("finished")
    else:
        recorder.status("failed", reason="ValueError: no\nmore")
    return folder


def record_cell(
    folder: Path, cell: Cell, hits: int = 60, seed: int = 0, stand_in: bool = False, **options: Any
) -> Path:
    """Write the folder of a run of a cell, as its sweep would make it; further options as of `record_run`.

    Args:
        folder: where.
        cell: of which.
        hits: correct answers out of 100.
        seed: of the run.
        stand_in: whether it is on the data that stand in.
        options: ``changes``, values of the configuration that differ, and what `record_run` takes.
    """
    cell = cell.on_stand_in() if stand_in else cell
    whole = {**cell.config, "seed": seed, **options.pop("changes", {})}
    return record_run(folder, hits, whole=whole, choices=cell.choices, **options)


def record_place(folder: Path, figure: str, place: str, hits: int = 60, scale: str = "smoke", **options: Any) -> Path:
    """Write the folder of a run of a place of a figure; further options as of `record_cell`.

    Args:
        folder: where.
        figure: its id.
        place: names of panel, series and point.
        hits: correct answers out of 100.
        scale: smoke, small or full.
        options: of `record_cell`.
    """
    places = displays("figure")[figure].places(ROLES, scale)
    (cell,) = {one.cell for one in places if ", ".join(filter(None, map(one.name, ROLES))) == place}
    return record_cell(folder, cell, hits, **options)
