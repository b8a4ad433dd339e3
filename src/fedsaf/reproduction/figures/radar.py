"""Figures over whole tables: one spoke per column, one line per row."""

from __future__ import annotations

from collections.abc import Sequence

from fedsaf.reproduction.collect import RecordedRun, SetAside
from fedsaf.reproduction.figures.definition import FigureDefinition
from fedsaf.reproduction.figures.numbers import Numbers, Row
from fedsaf.reproduction.measures import DOMAINS
from fedsaf.reproduction.selection import Labels, TableDefinition, table_definitions
from fedsaf.reproduction.tables import Cell, FilledTable, fill

MIN_SPOKES = 3
"""Fewer span no area."""


def radar(definition: FigureDefinition, scale: str, runs: Sequence[RecordedRun], aside: Sequence[SetAside]) -> Numbers:
    """Return one row per panel, table column and method, with the distance in points to the best of the column.

    A column that fewer than two methods have, on the same data, is no spoke; a panel of fewer than three spokes is left
    out.
    """
    numbers = Numbers(shown="points below the best method of each column, in the accuracies of the tables")
    for names in definition.tables:
        tables = [fill(table_definitions()[name], scale, runs, aside) for name in names]
        panel = "Tables " + ", ".join(table.definition.table for table in tables)
        rows = [row for table in tables for row in _spokes(panel, table, numbers)]
        if len({row["spoke"] for row in rows}) < MIN_SPOKES:
            numbers.missing.append(f"{panel} (fewer than {MIN_SPOKES} columns have two methods)")
        else:
            numbers.rows += rows
    numbers.missing, numbers.problems = list(dict.fromkeys(numbers.missing)), list(dict.fromkeys(numbers.problems))
    return numbers


def _spokes(panel: str, table: FilledTable, numbers: Numbers) -> list[Row]:
    """Return the rows of all columns of a table that are spokes; name what is missing."""
    rows: list[Row] = []
    for labels, column in zip(table.definition.columns, zip(*table.cells, strict=True), strict=True):
        if not _is_summary(table.definition, labels):
            continue
        spoke = f"{table.definition.table}: {', '.join(_varying(table.definition, labels))}"
        numbers.problems += [f"{spoke}, {cell.labels['method']}: {text}" for cell in column for text in cell.problems]
        known = [cell for cell in column if cell.ours is not None]
        data = min((cell.stand_in for cell in known), default="")
        compared = [cell for cell in known if cell.stand_in == data]
        if len(compared) < 2:
            numbers.missing.append(spoke)
            continue
        numbers.missing += [f"{spoke}, {cell.labels['method']}" for cell in column if cell not in compared]
        best = max(cell.ours.mean for cell in compared)
        rows += [_row(panel, spoke, cell, best) for cell in compared]
    return rows


def _row(panel: str, spoke: str, cell: Cell, best: float) -> Row:
    return {
        "panel": panel,
        "series": cell.labels["method"],
        "stand_in": cell.stand_in,
        "spoke": spoke,
        "mean": cell.ours.mean,
        "gap": cell.ours.mean - best,
        "n": cell.ours.n,
    }


def _is_summary(definition: TableDefinition, column: Labels) -> bool:
    """Return whether a column stands for itself; of accuracies per domain only their mean does."""
    return definition.measure.parts is not DOMAINS or not DOMAINS[column["setting"]]


def _varying(definition: TableDefinition, column: Labels) -> list[str]:
    axes = [axis for axis in column if len({other.get(axis) for other in definition.columns}) > 1]
    return [column[axis] for axis in axes or column if column[axis]]
