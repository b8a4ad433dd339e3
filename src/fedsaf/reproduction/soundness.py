"""Whether the files of a finished run agree with each other and hold what a run can hold; else it counts nowhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsaf.core.config import config_hash
from fedsaf.reproduction.records import UnusableRun, read_lines, read_object
from fedsaf.tracking.domains import client_domains, domain_accuracies
from fedsaf.tracking.recorder import CLIENTS, METRICS, PARTITION, SUMMARY, TIMING
from fedsaf.tracking.summary import predictors, summarise_rows

CONFIG = "config.yaml"
Rows = Sequence[Mapping[str, Any]]


def sound_records(
    folder: Path, config: Mapping[str, Any]
) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    """Return summary, rounds and timing of a run that says it is finished.

    Raises:
        UnusableRun: a file is missing or damaged, or contradicts another one or the configuration.
    """
    summary, rows, timing = read_object(folder / SUMMARY), read_lines(folder / METRICS), read_lines(folder / TIMING)
    clients = read_lines(folder / CLIENTS)
    recorded, today = summary.get("config_hash"), config_hash(config)
    if recorded != today:
        raise UnusableRun(
            f"{CONFIG} hashes to {today}, but {SUMMARY} says {recorded}: made by another version of the configuration, "
            "or edited; run it again"
        )
    if not isinstance(config["seed"], int) or isinstance(config["seed"], bool):
        raise UnusableRun(f"{CONFIG}: seed is {config['seed']!r}, expected a whole number")
    _check_rounds(rows, timing, config["rounds"])
    _check_numbers(rows, timing)
    _check_clients(clients, [row["round"] for row in rows], predictors(rows))
    again = summarise_rows(rows, timing)
    if "domains" in summary:
        domains = client_domains(read_object(folder / PARTITION))
        if not domains or len(domains) != len({row["client"] for row in clients}):
            raise UnusableRun(f"{SUMMARY} has domains, but {PARTITION} does not name one for each client")
        again["domains"] = domain_accuracies(clients, domains, predictors(rows))
    different = [key for key in again if summary.get(key) != again[key]]
    if different:
        raise UnusableRun(f"{SUMMARY} does not follow from the recorded rounds: {', '.join(different)}")
    if summary.get("predictor") not in predictors(rows):
        raise UnusableRun(f"{SUMMARY}: predictor is {summary.get('predictor')!r}, and no round was scored by it")
    return summary, rows, timing


def _check_rounds(rows: Rows, timing: Rows, last: int) -> None:
    """Refuse records that do not hold every round, once and in order."""
    if not rows:
        raise UnusableRun(f"{METRICS} holds no round")
    numbers = [row["round"] for row in rows]
    if numbers != list(range(min(numbers[0], 1), last + 1)):
        raise UnusableRun(f"{METRICS} does not hold every round up to {last}")
    if [row["round"] for row in timing] != numbers:
        raise UnusableRun(f"{TIMING} does not hold the rounds of {METRICS}")


def _check_numbers(rows: Rows, timing: Rows) -> None:
    """Refuse accuracies outside of [0, 1], and bytes and seconds that are no numbers >= 0."""
    for number, row in enumerate(rows, 1):
        for rule in predictors([row]):
            for key, value in (row.get(rule) or {}).items():
                if value is not None and not _is_share(value):  # None: nobody has a test sample
                    raise UnusableRun(
                        f"{METRICS}, line {number}: {rule}.{key} is {value!r}, expected a share in [0, 1]"
                    )
        for direction in ("upload_bytes", "download_bytes"):
            for key, value in (row.get(direction) or {}).items():
                if not _is_count(value):
                    raise UnusableRun(f"{METRICS}, line {number}: {direction}.{key} is {value!r}, expected a count")
    for number, row in enumerate(timing, 1):
        for key, value in row.items():
            if not _is_number(value) or value < 0:
                raise UnusableRun(f"{TIMING}, line {number}: {key} is {value!r}, expected a number >= 0")


def _check_clients(clients: Rows, rounds: Sequence[int], rules: Sequence[str]) -> None:
    """Refuse records in which a round lacks a client, has one twice, or an accuracy is none."""
    seen: dict[int, list[int]] = {}
    for number, row in enumerate(clients, 1):
        seen.setdefault(row["round"], []).append(row["client"])
        for rule in rules:
            if row.get(rule) is not None and not _is_share(row[rule]):
                raise UnusableRun(f"{CLIENTS}, line {number}: {rule} is {row[rule]!r}, expected a share in [0, 1]")
    if list(seen) != list(rounds):
        raise UnusableRun(f"{CLIENTS} does not hold the rounds of {METRICS}")
    everyone = list(range(len(seen[rounds[0]])))
    for number, found in seen.items():
        if found != everyone:
            raise UnusableRun(f"{CLIENTS}: round {number} does not hold every client once, in order")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)
