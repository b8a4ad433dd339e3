"""Recorded runs for a report: read, checked against themselves, and set aside with a reason where they do not hold.

Nothing that is damaged, unfinished or made under other rules ever reaches a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from fedsaf.core.config import flatten
from fedsaf.core.identity import without_incidental
from fedsaf.reproduction.records import UnusableRun, read_lines, read_object
from fedsaf.reproduction.soundness import CONFIG, sound_records
from fedsaf.tracking.recorder import CLIENTS, METRICS, STATES, STATUS, SUMMARY

WRITTEN_BESIDE = ("choices", "overrides")
"""Entries of ``config.yaml`` that are not of the configuration itself."""
MISSHAPEN = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError)
"""What reading records of another shape than the recorder's may raise."""


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
        overrides: words of the command line that made it.
    """

    folder: Path
    config: Mapping[str, Any]
    choices: Mapping[str, str]
    summary: Mapping[str, Any]
    rows: list[dict[str, Any]] = field(repr=False)
    timing: list[dict[str, Any]] = field(repr=False)
    commit: str | None = None
    overrides: tuple[str, ...] = ()

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return self.config["seed"]

    @cached_property
    def client_rows(self) -> list[dict[str, Any]]:
        """Rows of ``clients.jsonl``, read again when first asked for: together they are larger than all else."""
        return read_lines(self.folder / CLIENTS)

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
    values = dict(flatten(without_incidental(config)))
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
        config, choices, words = _configuration(folder)
        settings = settings_of(config, choices)
        status = read_object(folder / STATUS)
        if status.get("state") not in STATES:
            raise UnusableRun(f"{STATUS}: state is {status.get('state')!r}, expected one of {', '.join(STATES)}")
        if status["state"] != "finished":
            reason = f": {status['reason']}" if status.get("reason") else ""
            return SetAside(folder, f"{status['state']}{reason}".partition("\n")[0], False, settings)
        summary, rows, timing = sound_records(folder, config)
        return RecordedRun(folder, config, choices, summary, rows, timing, _commit(folder), words)
    except UnusableRun as error:
        return SetAside(folder, str(error), True, settings)
    except MISSHAPEN as error:
        return SetAside(folder, f"the records are not as they are written: {error!r}", True, settings)


def _configuration(folder: Path) -> tuple[dict[str, Any], dict[str, str], tuple[str, ...]]:
    path = folder / CONFIG
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        config = {key: value for key, value in content.items() if key not in WRITTEN_BESIDE}
        choices = {str(group): str(choice) for group, choice in content["choices"].items() if choice is not None}
        return config, choices, tuple(map(str, content["overrides"]))
    except FileNotFoundError:
        raise UnusableRun(f"{CONFIG} is missing: a part of the folder was deleted, or the run never began") from None
    except (OSError, ValueError, yaml.YAMLError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise UnusableRun(f"{CONFIG} cannot be read: {type(error).__name__} {error}".partition("\n")[0]) from error


def _commit(folder: Path) -> str | None:
    path = folder / "environment.json"
    if not path.exists():
        return None
    git = read_object(path).get("git")
    commit = git.get("commit") if isinstance(git, dict) else None
    return commit if isinstance(commit, str) else None
