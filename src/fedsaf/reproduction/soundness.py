"""Reads the files of a finished run strictly: what is missing, damaged or contradictory is named, never guessed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from fedsaf.core.identity import config_hash
from fedsaf.tracking.recorder import CLIENTS, METRICS, PARTITION, SUMMARY, TIMING
from fedsaf.tracking.summary import client_domains, domain_accuracies, predictors, summarise_rows

CONFIG = "config.yaml"
WRITTEN_BESIDE = ("choices", "overrides")
"""Entries of ``config.yaml`` that are not of the configuration itself."""
Rows = list[dict[str, Any]]


class UnusableRun(ValueError):
    """A run folder that must not count; the message says why."""


def sound_records(folder: Path, config: Mapping[str, Any]) -> tuple[dict[str, Any], Rows, Rows]:
    """Return summary, rounds and timing of a run that says it is finished.

    Raises:
        UnusableRun: a file is missing or damaged, or contradicts another one or the configuration.
    """
    summary = read_object(folder / SUMMARY)
    rows, timing, clients = (read_lines(folder / name) for name in (METRICS, TIMING, CLIENTS))
    recorded, today = summary.get("config_hash"), config_hash(config)
    if recorded != today:
        raise UnusableRun(
            f"{CONFIG} hashes to {today}, but {SUMMARY} says {recorded}: made by another version of the configuration, "
            "or edited; run it again"
        )
    if not isinstance(config["seed"], int) or isinstance(config["seed"], bool):
        raise UnusableRun(f"{CONFIG}: seed is {config['seed']!r}, expected a whole number")
    rules = predictors(rows)
    _check_rounds(rows, timing, config["rounds"])
    _check_numbers(rows, timing, rules)
    _check_clients(clients, [row["round"] for row in rows], rules)
    again = summarise_rows(rows, timing)
    if "domains" in summary:
        domains = client_domains(read_object(folder / PARTITION))
        if not domains or len(domains) != len({row["client"] for row in clients}):
            raise UnusableRun(f"{SUMMARY} has domains, but {PARTITION} does not name one for each client")
        again["domains"] = domain_accuracies(clients, domains, rules)
    if different := [key for key in again if summary.get(key) != again[key]]:
        raise UnusableRun(f"{SUMMARY} does not follow from the recorded rounds: {', '.join(different)}")
    if summary.get("predictor") not in rules:
        raise UnusableRun(f"{SUMMARY}: predictor is {summary.get('predictor')!r}, and no round was scored by it")
    return summary, rows, timing


def read_configuration(folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the resolved configuration of a run, and the choice of each group.

    Raises:
        UnusableRun: it is missing or cannot be read.
    """
    path = folder / CONFIG
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        config = {key: value for key, value in content.items() if key not in WRITTEN_BESIDE}
        return config, {str(group): str(choice) for group, choice in content["choices"].items() if choice is not None}
    except FileNotFoundError:
        raise UnusableRun(f"{CONFIG} is missing: a part of the folder was deleted, or the run never began") from None
    except (OSError, ValueError, yaml.YAMLError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise UnusableRun(f"{CONFIG} cannot be read: {type(error).__name__} {error}".partition("\n")[0]) from error


def read_commit(folder: Path) -> str | None:
    """Return the version of the code that made a run; None if it is unknown."""
    path = folder / "environment.json"
    git = read_object(path).get("git") if path.exists() else None
    commit = git.get("commit") if isinstance(git, dict) else None
    return commit if isinstance(commit, str) else None


def read_object(path: Path) -> dict[str, Any]:
    """Read a file that holds one JSON object.

    Raises:
        UnusableRun: the file is missing, unreadable, damaged or holds something else.
    """
    return _parse(_text(path), path.name)


def read_lines(path: Path) -> Rows:
    """Read one object per line; a finished run has no torn line, so one is damage like any other.

    Raises:
        UnusableRun: as of `read_object`, with the line.
    """
    lines = _text(path).splitlines()
    try:  # all lines at once, which takes half the time
        rows = json.loads(f"[{','.join(lines)}]", parse_constant=_refuse)
    except (ValueError, RecursionError):
        rows = []
    if len(rows) == len(lines) and all(type(row) is dict for row in rows):
        return rows
    return [_parse(line, f"{path.name}, line {number}") for number, line in enumerate(lines, 1)]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UnusableRun(f"{path.name} is missing: a part of the folder was deleted") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UnusableRun(f"{path.name} cannot be read: {error}") from error


def _refuse(literal: str) -> None:
    raise ValueError(f"holds {literal}, expected finite numbers")


def _parse(text: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise UnusableRun(f"{where}: is damaged: {error}") from error
    if not isinstance(value, dict):
        raise UnusableRun(f"{where}: holds a {type(value).__name__}, expected an object")
    return value


def _check_rounds(rows: Rows, timing: Rows, last: int) -> None:
    """Refuse records that do not hold every round, once and in order."""
    if not rows:
        raise UnusableRun(f"{METRICS} holds no round")
    numbers = [row["round"] for row in rows]
    if numbers != list(range(min(numbers[0], 1), last + 1)):
        raise UnusableRun(f"{METRICS} does not hold every round up to {last}")
    if [row["round"] for row in timing] != numbers:
        raise UnusableRun(f"{TIMING} does not hold the rounds of {METRICS}")


def _check_numbers(rows: Rows, timing: Rows, rules: Sequence[str]) -> None:
    """Refuse accuracies outside of [0, 1], and bytes and seconds that are no numbers >= 0."""
    for number, row in enumerate(rows, 1):
        where = f"{METRICS}, line {number}: "
        for rule in rules:
            _check_all(_named(row.get(rule), f"{where}{rule}."), _is_share, "a share in [0, 1]")
        for direction in ("upload_bytes", "download_bytes"):
            _check_all(_named(row.get(direction), f"{where}{direction}."), _is_count, "a count")
        measured = {key: value for key, value in (row.get("diagnostics") or {}).items() if value is not None}
        _check_all(_named(measured, f"{where}diagnostics."), _is_number, "a finite number")
    for number, row in enumerate(timing, 1):
        _check_all(_named(row, f"{TIMING}, line {number}: "), _is_positive, "a number >= 0")


def _check_clients(clients: Rows, rounds: Sequence[int], rules: Sequence[str]) -> None:
    """Refuse records in which a round lacks a client, has one twice, or an accuracy is none."""
    seen: dict[int, list[int]] = {}
    for row in clients:
        seen.setdefault(row["round"], []).append(row["client"])
    for rule in rules:
        shares = ((f"{CLIENTS}, line {number}: {rule}", row.get(rule)) for number, row in enumerate(clients, 1))
        _check_all(shares, _is_share, "a share in [0, 1]")
    if list(seen) != list(rounds):
        raise UnusableRun(f"{CLIENTS} does not hold the rounds of {METRICS}")
    everyone = list(range(len(seen[rounds[0]])))
    for number, found in seen.items():
        if found != everyone:
            raise UnusableRun(f"{CLIENTS}: round {number} does not hold every client once, in order")


def _named(values: Mapping[str, Any] | None, where: str) -> Iterable[tuple[str, Any]]:
    return ((where + key, value) for key, value in (values or {}).items())


def _check_all(values: Iterable[tuple[str, Any]], is_right: Any, expected: str) -> None:
    for name, value in values:
        if not is_right(value):
            raise UnusableRun(f"{name} is {value!r}, expected {expected}")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value >= 0


def _is_share(value: Any) -> bool:
    """Return whether a value is an accuracy; None is one of nobody who has a test sample."""
    return value is None or (_is_number(value) and 0 <= value <= 1)


def _is_count(value: Any) -> bool:
    return _is_positive(value) and value == int(value)
