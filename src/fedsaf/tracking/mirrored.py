"""What a mirror of a run is told besides its records: names that put seeds of a cell together, and running totals."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsaf.core.identity import config_hash
from fedsaf.core.types import RoundRecord
from fedsaf.tracking.closing import MIB, READ_BY_METHOD
from fedsaf.tracking.recorder import METRICS, read_rows
from fedsaf.tracking.summary import Scores

UNNAMED = ("logger", "fabric")
"""Groups that say how a run is made, not which experiment it is; nor do those that follow from others."""
MAX_NAME, MAX_TAG = 128, 64
"""Longest run name, group and tag that W&B accepts."""


class Tally:
    """What comparing runs of different methods needs and no single round holds; a resumed run goes on where it was.

    Args:
        predictor: the prediction rule by which the method is scored in its own paper; None reports no accuracy.
        folder: run folder, whose records hold the rounds before this process.
    """

    def __init__(self, predictor: str | None, folder: Path) -> None:
        self._predictor, self._folder = predictor, folder
        self._scores: Scores | None = None
        self._bytes = 0

    def after(self, record: RoundRecord) -> dict[str, float]:
        """Return ``reported/pooled``, the best of it so far, and the MiB that all rounds sent up and down."""
        row = {**record.metrics, "round": record.round}
        new = [row]
        if self._scores is None:
            self._scores = Scores()
            new = [old for old in read_rows(self._folder / METRICS) if old["round"] < record.round] + new
        for one in new:
            self._scores.add(one)
            self._bytes += sum((one.get(way) or {}).get("total", 0) for way in ("upload_bytes", "download_bytes"))
        values: dict[str, float] = {"reported/sent_mib": self._bytes / MIB}
        if self._predictor in self._scores.last:
            last, best = self._scores.last[self._predictor], self._scores.best[self._predictor]
            values["reported/best"] = best["pooled"]
            if last["round"] == record.round:
                values["reported/pooled"] = last["pooled"]
        return values


def label_choices(config: Mapping[str, Any], choices: Mapping[str, str]) -> dict[str, str]:
    """Return the choices that say something about a run: no empty ones, and of what the method reads or fixes."""
    method = config.get("method") or {}
    used = {*method.get("reads", ()), *method.get("fixes", ())}
    kept = {
        group: choice
        for group, choice in choices.items()
        if choice not in (None, "null") and group not in UNNAMED and (group not in READ_BY_METHOD or group in used)
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
    if different experiments started them, and another for every other configuration. Which experiment, paper or
    setting started a run is a tag.

    Args:
        config: the resolved configuration.
        choices: config group to choice.
    """
    shown = label_choices(config, choices)
    method, marks = config.get("method") or {}, {name: config.get(name) for name in ("scale", "stand_in_for")}
    parts = ["method", *method.get("reads", ()), "dataset", "partition", "model_group"]
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
