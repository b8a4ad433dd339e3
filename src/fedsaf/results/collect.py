"""Recorded runs for a report: read, checked against themselves, and set aside with a reason where they do not hold.

Nothing that is damaged, unfinished or made under other rules ever reaches a table.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from fedsaf.config import config_hash, flatten, identity
from fedsaf.results.recorder import CLIENTS, METRICS, STATUS, SUMMARY, TIMING
from fedsaf.results.summary import predictors, summarise_rows

CONFIG = "config.yaml"
WRITTEN_BESIDE = ("choices", "overrides")
"""Entries of ``config.yaml`` that are not of the configuration itself."""


class UnusableRun(ValueError):
    """A run folder that must not count; the message says why."""


@dataclass(frozen=True)
class RecordedRun:
    """A finished run whose files agree with each other.

    Attributes:
        folder: the run folder.
        config: the resolved configuration.
        choices: config group to choice.
        summary: ``summary.json``.
        rows: rows of ``metrics.jsonl``.
        timing: rows of ``timing.jsonl``.
        commit: of the code that made it; None if unknown.
    """

    folder: Path
    config: Mapping[str, Any]
    choices: Mapping[str, str]
    summary: Mapping[str, Any]
    rows: list[dict[str, Any]] = field(repr=False)
    timing: list[dict[str, Any]] = field(repr=False)
    commit: str | None = None

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return self.config["seed"]

    @cached_property
    def client_rows(self) -> list[dict[str, Any]]:
        """Rows of ``clients.jsonl``, read again when first asked for: together they are larger than all else."""
        return _rows(self.folder / CLIENTS)

    @cached_property
    def values(self) -> dict[str, Any]:
        """Dotted keys and values of what determines the result, but for the seed: what runs of one cell share."""
        return values_of(self.config)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What the run is selected by; see `settings_of`."""
        return settings_of(self.config, self.choices)


@dataclass(frozen=True)
class SetAside:
    """A run folder that does not count.

    Attributes:
        folder: the run folder.
        reason: why.
        is_fault: whether somebody should look: damage, or rules that changed. An unfinished run is none.
        settings: as of a recorded run; {} if the configuration cannot be read, or the run belongs to no cell.
    """

    folder: Path
    reason: str
    is_fault: bool
    settings: Mapping[str, Any]


def values_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return dotted keys and values of what determines the result, but for the seed."""
    values = dict(flatten(identity(config)))
    values.pop("seed", None)
    return values


def settings_of(config: Mapping[str, Any], choices: Mapping[str, str]) -> dict[str, Any]:
    """Return dotted keys and values, and the choice of each group under the group's own name."""
    return values_of(config) | dict(choices)


def collect(roots: Iterable[Path], validated: bool = False) -> tuple[list[RecordedRun], list[SetAside]]:
    """Read every run folder below the roots.

    A folder counts as one of a run if it holds a status, a configuration, records or a summary.

    Args:
        roots: folders of run folders.
        validated: whether runs with ``validation`` are wanted, and no others; such runs never stand beside those that
            were scored on what tables score.

    Returns:
        The runs that count, and those that do not, both by folder name.
    """
    names = (STATUS, CONFIG, METRICS, SUMMARY)
    folders = sorted({path.parent for root in roots for name in names for path in root.glob(f"*/{name}")})
    runs, aside = [], []
    for folder in folders:
        result = _read(folder)
        if isinstance(result, RecordedRun) and ("validation" in result.config) != validated:
            reason = f"scored on the {'test parts' if validated else 'validation parts'}"
            result = SetAside(folder, reason, False, {})
        (runs if isinstance(result, RecordedRun) else aside).append(result)
    return runs, aside


def _read(folder: Path) -> RecordedRun | SetAside:
    settings: Mapping[str, Any] = {}
    try:
        config, choices = _configuration(folder)
        settings = settings_of(config, choices)
        status = _object(folder / STATUS)
        if status.get("state") != "finished":
            reason = f": {status['reason']}" if status.get("reason") else ""
            return SetAside(folder, f"{status.get('state')}{reason}".partition("\n")[0], False, settings)
        return _finished(folder, config, choices)
    except UnusableRun as error:
        return SetAside(folder, str(error), True, settings)
    except (KeyError, TypeError, AttributeError) as error:  # records of another shape than the recorder's
        return SetAside(folder, f"the records are not as they are written: {error!r}", True, settings)


def _finished(folder: Path, config: Mapping[str, Any], choices: Mapping[str, str]) -> RecordedRun:
    summary, rows, timing = _object(folder / SUMMARY), _rows(folder / METRICS), _rows(folder / TIMING)
    recorded, today = summary.get("config_hash"), config_hash(config)
    if recorded != today:
        raise UnusableRun(
            f"{CONFIG} hashes to {today}, but {SUMMARY} says {recorded}: made by another version of the configuration, "
            "or edited; run it again"
        )
    if not rows:
        raise UnusableRun(f"{METRICS} holds no round")
    numbers = [row["round"] for row in rows]
    if numbers != list(range(min(numbers[0], 1), summary.get("rounds", -1) + 1)):
        raise UnusableRun(f"{METRICS} does not hold every round up to {summary.get('rounds')}")
    again = summarise_rows(rows, timing)
    different = [key for key in (*predictors(rows), "upload_bytes", "download_bytes") if summary.get(key) != again[key]]
    if different:
        raise UnusableRun(f"{SUMMARY} does not follow from {METRICS}: {', '.join(different)}")
    reached = max((row["round"] for row in _rows(folder / CLIENTS)), default=0)
    if reached != numbers[-1]:
        raise UnusableRun(f"{CLIENTS} ends with round {reached}, but {METRICS} with {numbers[-1]}")
    return RecordedRun(folder, config, choices, summary, rows, timing, _commit(folder))


def _configuration(folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    path = folder / CONFIG
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        config = {key: value for key, value in content.items() if key not in WRITTEN_BESIDE}
        return config, dict(content["choices"])
    except FileNotFoundError:
        raise UnusableRun(f"{CONFIG} is missing: a part of the folder was deleted, or the run never began") from None
    except (OSError, ValueError, yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
        raise UnusableRun(f"{CONFIG} cannot be read: {type(error).__name__} {error}".partition("\n")[0]) from error


def _object(path: Path) -> dict[str, Any]:
    """Read a file that holds one JSON object."""
    return _parse(_text(path), path.name)


def _rows(path: Path) -> list[dict[str, Any]]:
    """Read one object per line; a finished run has no torn line, so one is damage like any other."""
    return [_parse(line, f"{path.name}, line {number}") for number, line in enumerate(_text(path).splitlines(), 1)]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UnusableRun(f"{path.name} is missing: a part of the folder was deleted") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UnusableRun(f"{path.name} cannot be read: {error}") from error


def _parse(text: str, where: str) -> dict[str, Any]:
    def finite(literal: str) -> float:
        value = float(literal)
        if not math.isfinite(value):
            raise UnusableRun(f"{where}: holds {literal}, expected finite numbers")
        return value

    try:
        value = json.loads(text, parse_constant=finite, parse_float=finite)
    except json.JSONDecodeError as error:
        raise UnusableRun(f"{where}: is damaged: {error}") from error
    if not isinstance(value, dict):
        raise UnusableRun(f"{where}: holds a {type(value).__name__}, expected an object")
    return value


def _commit(folder: Path) -> str | None:
    path = folder / "environment.json"
    if not path.exists():
        return None
    git = _object(path).get("git") or {}
    return git.get("commit")
