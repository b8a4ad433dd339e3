"""Tables of a report: every cell from the runs that recorded what it requires, or empty with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fedsaf.reproduction.agreement import Placed, differences
from fedsaf.reproduction.choice import choose
from fedsaf.reproduction.collect import RecordedRun, SetAside
from fedsaf.reproduction.measures import rule_of
from fedsaf.reproduction.paper import PaperValue, printed
from fedsaf.reproduction.selection import Labels, TableDefinition
from fedsaf.tracking.intervals import Spread, spread_of

NUM_RANKS = 3
"""How many of a column are marked."""


@dataclass
class Cell:
    """One number and where it comes from.

    Attributes:
        labels: label by axis.
        ours: what our runs say; None where none counts.
        paper: what the paper prints; None where it prints nothing.
        difference: ours minus the paper's, only in the full scale.
        rank: 1 to 3 within the column if it is among its best, else None.
        stand_in: the data set that was used in place of the one of the labels; empty if none was.
        counted: the runs that count, by seed, each with what the labels required of it.
        notes: what a reader should know about the number.
        problems: why runs that seem to belong here do not count.
    """

    labels: Labels
    ours: Spread | None = None
    paper: PaperValue | None = None
    difference: float | None = None
    rank: int | None = None
    stand_in: str = ""
    counted: list[Placed] = field(default_factory=list, repr=False)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def runs(self) -> list[str]:
        """Folder names of the runs that count."""
        return [run.folder.name for run, _ in self.counted]


@dataclass(frozen=True)
class FilledTable:
    """A table with its cells, ``cells[row][column]``."""

    definition: TableDefinition
    scale: str
    shown: str
    cells: list[list[Cell]]

    def __iter__(self) -> Iterator[Cell]:
        return (cell for row in self.cells for cell in row)

    @property
    def num_filled(self) -> int:
        """How many cells have a number of ours."""
        return sum(cell.ours is not None for cell in self)


def fill(
    definition: TableDefinition, scale: str, runs: Sequence[RecordedRun], aside: Sequence[SetAside]
) -> FilledTable:
    """Fill a table from recorded runs of one scale; scales are never mixed.

    Args:
        definition: the table.
        scale: smoke, small or full.
        runs: recorded runs.
        aside: folders that do not count; those that belong to a cell are named there.
    """
    cells = [
        [_cell(definition, scale, definition.labels(row, column), runs, aside) for column in definition.columns]
        for row in definition.rows
    ]
    for column in zip(*cells, strict=True):
        _compare(column, definition.measure.best)
    used = {name for row in cells for cell in row for name in cell.runs}
    rules = sorted({rule_of(run, definition.rule).replace("_", " ") for run in runs if run.folder.name in used})
    shown = definition.measure.text.format(rule=" or ".join(rules) or definition.rule)
    return FilledTable(definition, scale, shown, cells)


def _cell(
    definition: TableDefinition,
    scale: str,
    labels: Labels,
    runs: Sequence[RecordedRun],
    aside: Sequence[SetAside],
) -> Cell:
    cell = Cell(labels, paper=printed(definition.paper, definition.table, labels))
    required = definition.requirement(labels, scale)
    chosen = choose(required, scale, runs, aside)
    cell.stand_in, cell.notes, cell.problems = chosen.stand_in, chosen.notes, chosen.problems
    values = []
    for run in chosen.runs:
        value = definition.measure.value(run, definition.rule, labels["setting"])
        if value is None:
            cell.problems.append(f"{run.folder.name}: has no number of this kind")
        else:
            values.append(value)
            cell.counted.append((run, required))
    if values:
        cell.ours = spread_of(values)
        commits = {run.commit for run, _ in cell.counted} - {None}
        if len(commits) > 1:
            cell.notes.append(f"runs of {len(commits)} versions of the code")
        if scale == "full" and cell.paper is not None:
            cell.difference = cell.ours.mean - float(cell.paper.mean)
    return cell


def _compare(column: Sequence[Cell], best: str) -> None:
    """Mark the best three of a column, where there is something to compare; equal means share a rank.

    Numbers of different data are not compared: where data sets stand in, only cells of the most faithful one count.
    Nor are numbers of different settings, which are noted.
    """
    known = [cell for cell in column if cell.ours is not None]
    data = min((cell.stand_in for cell in known), default="")  # the empty name, of the data themselves, comes first
    known = [cell for cell in known if cell.stand_in == data]
    if len(known) < 2:
        return
    if different := differences(placed for cell in known for placed in cell.counted):
        for cell in known:
            cell.notes.append(
                f"no fair comparison: the rows of this column were run with different {', '.join(different)}"
            )
        return
    if not best:
        return
    for cell in known:
        better = sum(
            other.ours.mean > cell.ours.mean if best == "high" else other.ours.mean < cell.ours.mean for other in known
        )
        cell.rank = better + 1 if better < NUM_RANKS else None
