"""What a mirror of a run is told besides its records: names that put seeds of a cell together, and running totals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsaf.core.config import config_hash, is_derived
from fedsaf.core.types import RoundRecord
from fedsaf.tracking.closing import MIB, READ_BY_METHOD
from fedsaf.tracking.recorder import METRICS, read_rows

UNNAMED = ("logger", "fabric")
"""Groups that say how a run is made, not which experiment it is; nor do those that follow from others."""
MAX_NAME, MAX_TAG = 128, 64
"""Longest run name, group and tag that W&B accepts."""


@dataclass
class Tally:
    """What comparing runs of different methods needs and no single round holds; a resumed run goes on where it was.

    Attributes:
        predictor: the prediction rule by which the method is scored in its own paper; None reports no accuracy.
        folder: run folder, whose records hold the rounds before this process.
    """

    predictor: str | None
    folder: Path
    _round: int | None = None
    _bytes: float = 0
    _best: float | None = None

    def after(self, record: RoundRecord) -> dict[str, float]:
        """Return ``reported/pooled``, the best of it so far, and the MiB that all rounds sent up and down."""
        if self._round is None:
            for row in read_rows(self.folder / METRICS):
                if row["round"] < record.round:
                    self._add(row)
        self._round = record.round
        accuracy = self._add(record.metrics)
        values: dict[str, float] = {"reported/sent_mib": self._bytes / MIB}
        if accuracy is not None:
            values["reported/pooled"] = accuracy
        if self._best is not None:
            values["reported/best"] = self._best
        return values

    def _add(self, metrics: Mapping[str, Any]) -> float | None:
        self._bytes += sum((metrics.get(way) or {}).get("total", 0) for way in ("upload_bytes", "download_bytes"))
        accuracy = (metrics.get(self.predictor or "") or {}).get("pooled")
        if accuracy is not None:
            self._best = accuracy if self._best is None else max(self._best, accuracy)
        return accuracy


def label_choices(config: Mapping[str, Any], choices: Mapping[str, str]) -> dict[str, str]:
    """Return the choices that say something about a run: no empty ones, and of what the method reads or fixes."""
    method = config.get("method") or {}
    used = {*method.get("reads", READ_BY_METHOD), *method.get("fixes", ())}
    kept = {
        group: choice
        for group, choice in choices.items()
        if choice not in (None, "null")
        and group not in UNNAMED
        and not is_derived(group)
        and (group not in READ_BY_METHOD or group in used)
    }
    if "method" in kept:  # its own name may say more than its file: fedtsp_lexical is no FedTSP
        kept["method"] = method.get("name") or kept["method"]
    return kept


def mirrored_choices(config: Mapping[str, Any], choices: Mapping[str, str]) -> dict[str, str]:
    """Return the choices under names of their own, without nesting, since views filter by them: ``chosen_dataset``."""
    return {f"chosen_{group}": choice for group, choice in label_choices(config, choices).items()}


def run_labels(config: Mapping[str, Any], choices: Mapping[str, str]) -> dict[str, Any]:
    """Return group, job type, tags and name of a run.

    A group is a cell: it follows from the configuration without the seed alone, so it is the same for all seeds, also
    if different experiments started them, and another for every other configuration. Which experiment, regime or
    setting started a run is a tag.

    Args:
        config: the resolved configuration.
        choices: config group to choice.
    """
    shown = label_choices(config, choices)
    method, marks = config.get("method") or {}, {name: config.get(name) for name in ("tier", "stand_in_for")}
    parts = ["method", *method.get("reads", READ_BY_METHOD), "dataset", "partition", "model_group"]
    readable = "-".join(str(part) for part in (*(shown.get(part) for part in parts), *marks.values()) if part)
    digits = config_hash({key: value for key, value in config.items() if key != "seed"})[:8]
    end = f"-seed{config.get('seed')}"
    tags = {**shown, **{name: value for name, value in marks.items() if value}}
    return {
        "group": f"{readable[: MAX_NAME - 9]}-{digits}",
        "job_type": shown.get("method", "train")[:MAX_TAG],
        "tags": [f"{name}={value}"[:MAX_TAG] for name, value in tags.items()],
        "name": f"{readable[: MAX_NAME - 9 - len(end)]}-{digits}{end}",
    }


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Return the numbers of nested mappings under names joined by ``/``; lists count, and what is None has no name.

    >>> flatten({"classifier": {"pooled": 0.5, "worst_10": None}, "failed_clients": [3, 7]})
    {'classifier/pooled': 0.5, 'failed_clients': 2}
    """
    flat: dict[str, float] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}/")
        elif isinstance(value, list | tuple):
            flat[f"{prefix}{key}"] = len(value)
        elif isinstance(value, int | float):
            flat[f"{prefix}{key}"] = value
    return flat
