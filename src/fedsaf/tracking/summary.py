"""From the rows of a run to its summary: last and best accuracy of each prediction rule and domain, traffic, time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

PREDICTORS = ("classifier", "nearest_prototype")
"""Prediction rules that every summary names, with None for one that the run did not evaluate."""
SECONDS = ("client", "server", "evaluation", "data")
DOMAIN_MEAN = "mean"
"""Key of the unweighted mean over domains, beside the ``accuracy`` of each."""
Row = Mapping[str, Any]


def best_of(accuracies: Sequence[Row], key: str = "pooled") -> dict[str, Any]:
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
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self.last: dict[str, dict[str, Any]] = {}
        self.best: dict[str, dict[str, Any]] = {}
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        """Take in one round."""
        for name in predictors([row]):
            if _is_accuracy(row.get(name)):
                self.last[name] = {**row[name], "round": row["round"]}
                before = [self.best[name]] if name in self.best else []
                self.best[name] = best_of([*before, self.last[name]])


def predictors(rows: Sequence[Row]) -> list[str]:
    """Return the names of the prediction rules in the rows: the known two, then any other that was evaluated."""
    names = dict.fromkeys(PREDICTORS)
    for row in rows:
        names |= dict.fromkeys(key for key in sorted(row) if _is_accuracy(row[key]))
    return list(names)


def summarise_rows(rows: Sequence[Row], timing: Sequence[Row]) -> dict[str, Any]:
    """Return what the rows of ``metrics.jsonl`` and ``timing.jsonl`` say about a run.

    Returns:
        ``rounds``, the last recorded round. For each prediction rule ``last`` and ``best``, the accuracies of one
        ``round``: ``pooled`` is hits over test samples of all clients, ``client_mean`` the plain mean over clients;
        ``best`` is the round of the best *pooled* accuracy on the test parts, so its ``client_mean`` need not be the
        largest. ``upload_bytes`` and ``download_bytes``, and by channel: sums over rounds and clients. ``seconds``:
        sums over rounds by what was timed. ``median_round_seconds`` of the rounds that trained, None if there is none.
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
    peaks = sorted({key for row in timing for key in row if key.endswith("_bytes")})
    seconds = _sums({key: row[key] for key in row if key not in ("round", *peaks)} for row in timing)
    summary["seconds"] = dict.fromkeys(SECONDS, 0.0) | seconds
    totals = [row["total"] for row in timing if row["round"] >= 1 and "total" in row]
    summary["median_round_seconds"] = median(totals) if totals else None
    for key in peaks:
        summary[f"max_{key.removeprefix('max_')}"] = max(row[key] for row in timing if key in row)
    return summary


def client_domains(partition: Row | None) -> list[str] | None:
    """Return the domain of each client from ``partition.json``; None where clients hold users, none, or all the same.

    Raises:
        ValueError: there are not as many domains as clients.
    """
    partition = partition or {}
    groups = partition.get("client_groups")
    if not groups or len(set(groups)) < 2 or partition["rule"] != "ByDomain":
        return None
    if len(groups) != partition["num_clients"]:
        raise ValueError(f"client_groups: got {len(groups)} names, expected one for each of {partition['num_clients']}")
    return [str(group) for group in groups]


def domain_accuracies(
    rows: Sequence[Row], domains: Sequence[str], rules: Sequence[str]
) -> dict[str, dict[str, Any] | None]:
    """Return last and best accuracies per domain of each prediction rule, as FedSAF Table IV prints them.

    Clients of one domain are pooled: hits over test samples of all of them. Hits are whole numbers, so they follow
    exactly from a client's accuracy and its number of test samples. ``rows`` are those of ``clients.jsonl``;
    ``domains`` has the name of each client's domain, by client id.

    Returns:
        For each rule ``last`` and ``best``, each with ``round``, ``accuracy`` (by domain, in order of first client) and
        ``mean``, the unweighted mean over domains; None for a rule that was not evaluated. ``best`` is `best_of` these
        means, which need not be the round of the best pooled accuracy. A domain without a test sample has no accuracy
        (None) and no part in the mean.
    """
    by_rule = {rule: _domains_by_round(rows, domains, rule) for rule in rules}
    return {
        rule: {"last": rounds[-1], "best": best_of(rounds, DOMAIN_MEAN)} if rounds else None
        for rule, rounds in by_rule.items()
    }


def _domains_by_round(rows: Sequence[Row], domains: Sequence[str], rule: str) -> list[dict[str, Any]]:
    hits: Counter[tuple[int, str]] = Counter()
    totals: Counter[tuple[int, str]] = Counter()
    for row in rows:
        if row.get(rule) is not None:
            place = row["round"], domains[row["client"]]
            hits[place] += round(row[rule] * row["num_test"])
            totals[place] += row["num_test"]
    entries = []
    for number in sorted({number for number, _ in totals}):
        places = {name: (number, name) for name in dict.fromkeys(domains)}
        accuracy = {name: hits[at] / totals[at] if totals[at] else None for name, at in places.items()}
        known = [value for value in accuracy.values() if value is not None]
        entries.append({"round": number, "accuracy": accuracy, DOMAIN_MEAN: fmean(known)})
    return entries


def _is_accuracy(value: Any) -> bool:
    return isinstance(value, Mapping) and value.get("pooled") is not None


def _sums(items: Iterable[Row]) -> dict[str, Any]:
    sums: Counter[str] = Counter()
    for item in items:
        sums.update(item)
    return dict(sums)
