"""From the rows of a run to its summary: last and best accuracy of each prediction rule, traffic, time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

PREDICTORS = ("classifier", "nearest_prototype")
"""Prediction rules that every summary names, with None for one that the run did not evaluate."""

SECONDS = ("client", "server", "evaluation", "data")


def evaluated(rows: Sequence[Mapping[str, Any]], predictor: str) -> list[dict[str, Any]]:
    """Return the accuracies of a prediction rule in the rounds that evaluated it, each with its ``round``."""
    return [{**row[predictor], "round": row["round"]} for row in rows if _is_accuracy(row.get(predictor))]


def best_of(accuracies: Sequence[Mapping[str, Any]], key: str = "pooled") -> dict[str, Any]:
    """Return the round with the largest accuracy, the earliest among equals; there must be one.

    Rounds that trained count before round 0: the evaluation before training is the best only if it is the only one.

    >>> best_of([{"round": 0, "pooled": 0.9}, {"round": 1, "pooled": 0.5}, {"round": 2, "pooled": 0.5}])
    {'round': 1, 'pooled': 0.5}
    """
    trained = [accuracy for accuracy in accuracies if accuracy["round"] >= 1] or accuracies
    return dict(max(trained, key=lambda accuracy: accuracy[key]))


class Scores:
    """Last and best accuracies of each prediction rule, round after round.

    >>> scores = Scores([{"round": 1, "classifier": {"pooled": 0.73}}, {"round": 2, "classifier": {"pooled": 0.71}}])
    >>> scores.last["classifier"]["pooled"], scores.best["classifier"]
    (0.71, {'pooled': 0.73, 'round': 1})

    Args:
        rows: rows of ``metrics.jsonl``.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        self.last: dict[str, dict[str, Any]] = {}
        self.best: dict[str, dict[str, Any]] = {}
        for row in rows:
            self.add(row)

    def add(self, row: Mapping[str, Any]) -> None:
        """Take in one round."""
        for name in predictors([row]):
            for accuracy in evaluated([row], name):
                before = [self.best[name]] if name in self.best else []
                self.last[name], self.best[name] = accuracy, best_of([*before, accuracy])


def predictors(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the prediction rules in the rows: the known two, then any other that was evaluated."""
    names = dict.fromkeys(PREDICTORS)
    for row in rows:
        names |= dict.fromkeys(key for key in sorted(row) if _is_accuracy(row[key]))
    return list(names)


def summarise_rows(rows: Sequence[Mapping[str, Any]], timing: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the rows of a run say about it.

    Args:
        rows: rows of ``metrics.jsonl``.
        timing: rows of ``timing.jsonl``.

    Returns:
        ``rounds``, the last recorded round.
        For each prediction rule ``last`` and ``best``, each the accuracies of one round with its ``round``:
        ``pooled`` is hits over test samples of all clients, ``client_mean`` the plain mean over clients; ``best``
        is the round of the best *pooled* accuracy on the test parts, so its ``client_mean`` need not be the largest.
        ``upload_bytes`` and ``download_bytes``: sums over rounds and clients, and by channel beside them.
        ``seconds``: sums over rounds of ``client``, ``server``, ``evaluation``, ``data`` and what else was timed.
        ``median_round_seconds``: median of ``total`` over the rounds that trained; None if there is none.
        ``num_failed_clients``: how often a client failed and was left out. Peaks of memory end in ``_bytes``.

    Raises:
        ValueError: there is no row.
    """
    if not rows:
        raise ValueError("rows: got none, expected at least one recorded round")
    summary: dict[str, Any] = {"rounds": rows[-1]["round"]}
    scores = Scores(rows)
    for name in predictors(rows):
        summary[name] = {"last": scores.last[name], "best": scores.best[name]} if name in scores.last else None
    for direction in ("upload_bytes", "download_bytes"):
        channels = _sums(row.get(direction) or {} for row in rows)
        summary[direction] = channels.pop("total", 0)
        summary[f"{direction}_by_channel"] = channels
    summary["num_failed_clients"] = sum(len(row.get("failed_clients") or ()) for row in rows)
    seconds = _sums({key: value for key, value in row.items() if _is_duration(key)} for row in timing)
    summary["seconds"] = dict.fromkeys(SECONDS, 0.0) | seconds
    totals = [row["total"] for row in timing if row["round"] >= 1 and "total" in row]
    summary["median_round_seconds"] = median(totals) if totals else None
    for key in sorted({key for row in timing for key in row if key.endswith("_bytes")}):
        summary[f"max_{key.removeprefix('max_')}"] = max(row[key] for row in timing if key in row)
    return summary


def _is_accuracy(value: Any) -> bool:
    return isinstance(value, Mapping) and value.get("pooled") is not None


def _is_duration(key: str) -> bool:
    return key != "round" and not key.endswith("_bytes")


def _sums(items: Any) -> dict[str, Any]:
    sums: dict[str, Any] = {}
    for item in items:
        for key, value in item.items():
            sums[key] = sums.get(key, 0) + value
    return sums
