"""Which recorded runs are behind a number: those that the sweep would start, one per seed, if they agree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedsaf.reproduction.cell import Cell
from fedsaf.reproduction.frame import Records, Run

FINAL = ("method", "dataset", "model_group")
"""Groups whose choice a run records in any case, so that a cell without such a run need not be composed."""
NEVER = 10**9


@dataclass
class Found:
    """The runs of a cell that count, and what else seemed to belong there.

    Attributes:
        cell: without a seed.
        runs: one per seed, in order of seeds; the one that was diagnosed most often if several agree.
        stand_in: the data set that was used in place of the named one; empty if none was.
        notes: what a reader should know.
        problems: why runs that seem to belong here do not count.
    """

    cell: Cell
    runs: list[Run] = field(default_factory=list)
    stand_in: str = ""
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class Matcher:
    """Finds the runs of cells, each cell once.

    Args:
        records: what was read.
    """

    def __init__(self, records: Records) -> None:
        self.records = records
        self._recorded = {_settings(one.choices, one.config) for one in (*records.runs, *records.aside)}
        self._found: dict[tuple[str, ...], Found] = {}

    def find(self, cell: Cell) -> Found:
        """Return the runs of a cell; below scale full those on data that stand in, if there is none on its own."""
        if cell.words not in self._found:
            self._found[cell.words] = self._search(cell) if self._may_exist(cell) else Found(cell)
        return self._found[cell.words]

    def _search(self, cell: Cell) -> Found:
        found, replaced = Found(cell), cell.on_stand_in()
        runs = self.records.cells.get(cell.key, [])
        if not runs and replaced is not None:
            runs = self.records.cells.get(replaced.key, [])
            found.stand_in = replaced.choices["dataset"] if runs else ""
        keys = {cell.key} | ({replaced.key} if replaced else set())
        for one in self.records.aside:
            if one.cell in keys:
                (found.problems if one.is_fault else found.notes).append(f"{one.folder.name}: {one.reason}")
        found.runs = _agreeing(runs, found.problems)
        for run in found.runs:
            if failed := run.summary["num_failed_clients"]:
                found.notes.append(f"{run.folder.name}: a client failed and was left out, {failed} times in all")
        if len(commits(found.runs)) > 1:
            found.notes.append(f"runs of {len(commits(found.runs))} versions of the code")
        return found

    def _may_exist(self, cell: Cell) -> bool:
        """Return whether anything was recorded that this cell could be, as far as that is known without composing."""
        chosen = {group: cell.chooses(group) for group in FINAL}
        return any(
            scale == cell.scale
            and all(
                choice in (None, choices[group]) or (group == "dataset" and choice == stand_in)
                for group, choice in chosen.items()
            )
            for scale, stand_in, *named in self._recorded
            for choices in [dict(zip(FINAL, named, strict=True))]
        )


def commits(runs: Iterable[Run]) -> set[str]:
    """Return the versions of the code that made these runs, as far as they are known."""
    return {run.commit for run in runs if run.commit is not None}


def _settings(choices: Mapping[str, str], config: Mapping[str, Any]) -> tuple[Any, ...]:
    return (config.get("scale"), config.get("stand_in_for"), *(choices.get(group) for group in FINAL))


def _agreeing(runs: Sequence[Run], problems: list[str]) -> list[Run]:
    """Return one run per seed; [] with the problem noted if two runs of a seed contradict each other."""
    by_seed: dict[int, Run] = {}
    for run in sorted(runs, key=lambda run: (run.seed, run.config.get("diagnostics_every") or NEVER, run.folder.name)):
        other = by_seed.setdefault(run.seed, run)
        if other is not run and _results(other) != _results(run):
            problems.append(
                f"{other.folder.name} ({other.folder.parent}) and {run.folder.name} ({run.folder.parent}) have seed "
                f"{run.seed} and one configuration, but different results"
            )
            return []
    return list(by_seed.values())


def _results(run: Run) -> list[dict[str, Any]]:
    """Return what must be equal in two runs of one configuration and seed."""
    return [{key: value for key, value in row.items() if key != "diagnostics"} for row in run.rows]
