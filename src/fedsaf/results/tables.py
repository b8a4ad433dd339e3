"""Tables of a report: every cell from the runs that recorded what it requires, or empty with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedsaf.results.collect import RecordedRun, SetAside
from fedsaf.results.intervals import Spread, spread_of
from fedsaf.results.measures import rule_of
from fedsaf.results.paper import PaperValue, printed
from fedsaf.results.selection import DATASET, Labels, TableDefinition, on_stand_in, satisfies

NUM_RANKS = 3
"""How many of a column are marked."""
SHOWN_KEYS = 6
"""Differing keys that a message names."""
MISSING = object()
DIAGNOSTICS, DIAGNOSTICS_EVERY = "diagnostics", "diagnostics_every"
"""What is measured beside the results, and how often: the only key in which runs of one cell may differ."""
NEVER = 10**9


@dataclass
class Cell:
    """One number and where it comes from.

    Attributes:
        labels: label by axis.
        ours: what our runs say; None where none counts.
        paper: what the paper prints; None where it prints nothing.
        difference: ours minus the paper's, only in the full tier.
        rank: 1 to 3 within the column if it is among its best, else None.
        stand_in: the data set that was used in place of the one of the labels; empty if none was.
        runs: folder names of the runs that count, by seed.
        notes: what a reader should know about the number.
        problems: why runs that seem to belong here do not count.
    """

    labels: Labels
    ours: Spread | None = None
    paper: PaperValue | None = None
    difference: float | None = None
    rank: int | None = None
    stand_in: str = ""
    runs: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class FilledTable:
    """A table with its cells, ``cells[row][column]``."""

    definition: TableDefinition
    tier: str
    shown: str
    cells: list[list[Cell]]

    def __iter__(self) -> Iterator[Cell]:
        return (cell for row in self.cells for cell in row)

    @property
    def num_filled(self) -> int:
        """How many cells have a number of ours."""
        return sum(cell.ours is not None for cell in self)


def fill(definition: TableDefinition, tier: str, runs: Sequence[RecordedRun], aside: Sequence[SetAside]) -> FilledTable:
    """Fill a table from recorded runs of one tier; tiers are never mixed.

    Args:
        definition: the table.
        tier: smoke, small or full.
        runs: recorded runs.
        aside: folders that do not count; those that belong to a cell are named there.
    """
    cells = [
        [_cell(definition, tier, definition.labels(row, column), runs, aside) for column in definition.columns]
        for row in definition.rows
    ]
    for column in zip(*cells, strict=True):
        _rank(column, definition.measure.best)
    used = {name for row in cells for cell in row for name in cell.runs}
    rules = sorted({rule_of(run, definition.rule).replace("_", " ") for run in runs if run.folder.name in used})
    shown = definition.measure.text.format(rule=" or ".join(rules) or definition.rule)
    return FilledTable(definition, tier, shown, cells)


def _cell(
    definition: TableDefinition,
    tier: str,
    labels: Labels,
    runs: Sequence[RecordedRun],
    aside: Sequence[SetAside],
) -> Cell:
    cell = Cell(labels, paper=printed(definition.paper, definition.table, labels))
    required = definition.requirement(labels, tier)
    matching = [run for run in runs if satisfies(run.settings, required)]
    if not matching and tier != "full":
        matching = [run for run in runs if satisfies(run.settings, on_stand_in(required))]
        cell.stand_in = " or ".join(sorted({run.settings[DATASET] for run in matching}))
    asked = [required] if tier == "full" else [required, on_stand_in(required)]
    for folder in aside:
        if any(satisfies(folder.settings, one) for one in asked):
            (cell.problems if folder.is_fault else cell.notes).append(f"{folder.folder.name}: {folder.reason}")
    counted: dict[str, float] = {}
    commits = set()
    for run in _agreeing(matching, cell):
        value = definition.measure.value(run, definition.rule, labels["setting"])
        if value is None:
            cell.problems.append(f"{run.folder.name}: has no number of this kind")
        else:
            counted[run.folder.name] = value
            commits |= {run.commit} - {None}
    if counted:
        cell.ours, cell.runs = spread_of(list(counted.values())), list(counted)
        if len(commits) > 1:
            cell.notes.append(f"runs of {len(commits)} versions of the code")
        if tier == "full" and cell.paper is not None:
            cell.difference = cell.ours.mean - float(cell.paper.mean)
    return cell


def _agreeing(runs: Sequence[RecordedRun], cell: Cell) -> list[RecordedRun]:
    """Return one run per seed; [] with the problem noted if the runs are not of one experiment, or contradict."""
    by_seed: dict[int, RecordedRun] = {}
    ordered = sorted(runs, key=lambda run: (run.seed, run.values.get(DIAGNOSTICS_EVERY) or NEVER, run.folder.name))
    for run in ordered:
        if keys := _differing(ordered[0].values, run.values):
            cell.problems.append(f"{ordered[0].folder.name} and {run.folder.name} are different experiments: {keys}")
            return []
        other = by_seed.setdefault(run.seed, run)
        if _results(other) != _results(run):
            cell.problems.append(
                f"{other.folder.name} ({other.folder.parent}) and {run.folder.name} ({run.folder.parent}) have seed "
                f"{run.seed} and one configuration, but different results"
            )
            return []
    return list(by_seed.values())


def _results(run: RecordedRun) -> list[dict[str, Any]]:
    """Return what must be equal in two runs of one configuration and seed."""
    return [{key: value for key, value in row.items() if key != DIAGNOSTICS} for row in run.rows]


def _differing(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """Return which keys differ and how; empty if none does."""
    keys = [key for key in sorted(ours | theirs) if ours.get(key, MISSING) != theirs.get(key, MISSING)]
    keys = [key for key in keys if key != DIAGNOSTICS_EVERY]
    texts = [f"{key} is {_shown(ours, key)} and {_shown(theirs, key)}" for key in keys[:SHOWN_KEYS]]
    return "; ".join([*texts, f"and {len(keys) - SHOWN_KEYS} more"] if len(keys) > SHOWN_KEYS else texts)


def _shown(settings: Mapping[str, Any], key: str) -> str:
    return str(settings[key]) if key in settings else "absent"


def _rank(column: Sequence[Cell], best: str) -> None:
    """Mark the best three of a column, where there is something to compare; equal means share a rank.

    Numbers of different data are not compared: where data sets stand in, only cells of the most faithful one count.
    """
    known = [cell for cell in column if cell.ours is not None]
    data = min((cell.stand_in for cell in known), default="")  # the empty name, of the data themselves, comes first
    known = [cell for cell in known if cell.stand_in == data]
    if not best or len(known) < 2:
        return
    for cell in known:
        better = sum(
            other.ours.mean > cell.ours.mean if best == "high" else other.ours.mean < cell.ours.mean for other in known
        )
        cell.rank = better + 1 if better < NUM_RANKS else None
