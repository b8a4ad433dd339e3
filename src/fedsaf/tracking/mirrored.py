"""What a mirror of a run is told besides its records: names that put seeds of a cell together, and running totals."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsaf.core.config import flatten
from fedsaf.core.identity import cell_hash
from fedsaf.core.types import RoundRecord
from fedsaf.tracking.closing import MIB, telling_choices
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


def chosen(config: Mapping[str, Any], choices: Mapping[str, str]) -> dict[str, str]:
    """Return the choices under names of their own, without nesting, since views filter by them: ``chosen_dataset``."""
    told = telling_choices(config, choices)
    return {f"chosen_{group}": choice for group, choice in told.items() if group not in UNNAMED}


def run_labels(config: Mapping[str, Any], choices: Mapping[str, str]) -> dict[str, Any]:
    """Return group, job type, tags and name of a run.

    A group is a cell, so it is the same for all seeds, also if different experiments started them, and another for
    every other configuration. Which experiment, paper or setting started a run is a tag.
    """
    shown = {key: choice for key, choice in telling_choices(config, choices).items() if key not in UNNAMED}
    method, marks = config.get("method") or {}, {name: config.get(name) for name in ("scale", "stand_in_for")}
    parts = ["method", *method.get("reads", ()), "dataset", "partition", "model_group"]
    readable = "-".join(str(part) for part in (*(shown.get(part) for part in parts), *marks.values()) if part)
    digits = cell_hash(config)[:8]
    end = f"-seed{config.get('seed')}"
    tags = {**shown, **{name: value for name, value in marks.items() if value}}
    return {
        "group": f"{readable[: MAX_NAME - 9]}-{digits}",
        "job_type": shown.get("method", "train")[:MAX_TAG],
        "tags": [f"{name}={value}"[:MAX_TAG] for name, value in tags.items()],
        "name": f"{readable[: MAX_NAME - 9 - len(end)]}-{digits}{end}",
    }


def numbers_of(record: RoundRecord) -> dict[str, float]:
    """Return the numbers of a round under names joined by ``/``; lists count, and what is None has no name."""
    values = flatten({**record.metrics, "seconds": record.timing, "round": record.round}, separator="/")
    counted = {key: len(value) if isinstance(value, list | tuple) else value for key, value in values}
    return {key: value for key, value in counted.items() if isinstance(value, int | float)}
