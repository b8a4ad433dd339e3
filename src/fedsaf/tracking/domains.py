"""Accuracy per domain by name, as FedSAF Table IV prints it, from the recorded rows of the clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from fedsaf.tracking.summary import best_of

DOMAIN_MEAN = "mean"
"""Key of the unweighted mean over domains, beside the ``accuracy`` of each."""


def client_domains(partition: Mapping[str, Any] | None) -> list[str] | None:
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
    rows: Sequence[Mapping[str, Any]], domains: Sequence[str], predictors: Sequence[str]
) -> dict[str, dict[str, Any] | None]:
    """Return last and best accuracies per domain of each prediction rule.

    Clients of one domain are pooled: hits over test samples of all of them. Hits are whole numbers, so they follow
    exactly from a client's accuracy and its number of test samples.

    Args:
        rows: rows of ``clients.jsonl``.
        domains: name of each client's domain, by client id.
        predictors: names of the prediction rules.

    Returns:
        For each rule ``last`` and ``best``, each with ``round``, ``accuracy`` (by domain, in order of first client) and
        ``mean``, the unweighted mean over domains; None for a rule that was not evaluated. ``best`` is the round
        with the largest *unweighted mean*, the earliest among equals, which need not be the one of the best pooled
        accuracy. A domain without a test sample has no accuracy (None) and no part in the mean. Round 0, before
        training, is the best only if it is the only one.
    """
    by_rule = {rule: _by_round(rows, domains, rule) for rule in predictors}
    return {
        rule: {"last": rounds[-1], "best": best_of(rounds, DOMAIN_MEAN)} if rounds else None
        for rule, rounds in by_rule.items()
    }


def _by_round(rows: Sequence[Mapping[str, Any]], domains: Sequence[str], rule: str) -> list[dict[str, Any]]:
    names = list(dict.fromkeys(domains))
    counts: dict[int, dict[str, list[int]]] = {}
    for row in rows:
        if row.get(rule) is None:
            continue
        of_round = counts.setdefault(row["round"], {name: [0, 0] for name in names})
        count = of_round[domains[row["client"]]]
        count[0] += round(row[rule] * row["num_test"])
        count[1] += row["num_test"]
    entries = []
    for number, of_round in sorted(counts.items()):
        accuracy = {name: hits / total if total else None for name, (hits, total) in of_round.items()}
        known = [value for value in accuracy.values() if value is not None]
        entries.append({"round": number, "accuracy": accuracy, DOMAIN_MEAN: fmean(known)})
    return entries
