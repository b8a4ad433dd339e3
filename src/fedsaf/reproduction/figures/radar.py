"""The figure over whole tables: one spoke per column, one line per row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from fedsaf.reproduction.collect import RecordedRun, SetAside
from fedsaf.reproduction.experiments import Display
from fedsaf.reproduction.figures.papers import SHOWN, BuiltFigure
from fedsaf.reproduction.measures import DOMAINS
from fedsaf.reproduction.selection import Labels, TableDefinition, table_definitions
from fedsaf.reproduction.tables import FilledTable, fill

MIN_SPOKES = 3
"""Fewer span no area."""
RADAR = Display(
    kind="figure",
    id="saf-f3",
    target="figure-3",
    node={
        "title": "FedSAF, Fig. 3: all tables at once",
        "kind": "radar",
        "tables": [["saf-t1", "saf-t2"], ["saf-t3", "saf-t4", "saf-t5", "saf-t6", "saf-t7"]],
    },
    blocks=(),
)
"""It has no runs of its own."""


def run_targets(display: Display) -> list[str]:
    """Return the targets whose runs a figure shows: its own, or those of its tables."""
    names = [name for panel in display.node.get("tables", []) for name in panel]
    return [table_definitions()[name].target for name in names] or [display.target]


def build_radar(scale: str, runs: Sequence[RecordedRun], aside: Sequence[SetAside]) -> BuiltFigure:
    """Return one row per panel, table column and method, with the distance in points to the best of the column.

    A column that fewer than two methods have, on the same data, is no spoke; a panel of fewer than three spokes is left
    out.
    """
    built, kept = BuiltFigure(RADAR, scale, shown=SHOWN["radar"]), []
    for names in RADAR.node["tables"]:
        tables = [fill(table_definitions()[name], scale, runs, aside) for name in names]
        panel = "Tables " + ", ".join(table.definition.table for table in tables)
        rows = [{"panel": panel, **row} for table in tables for row in _spokes(table, built)]
        if len({row["spoke"] for row in rows}) < MIN_SPOKES:
            built.missing.append(f"{panel} (fewer than {MIN_SPOKES} columns have two methods)")
        else:
            kept += rows
    built.rows = pd.DataFrame(kept)
    built.order["series"] = list(dict.fromkeys(row["series"] for row in kept))
    built.missing, built.problems = list(dict.fromkeys(built.missing)), list(dict.fromkeys(built.problems))
    return built


def _spokes(table: FilledTable, built: BuiltFigure) -> Iterator[dict[str, Any]]:
    """Yield the rows of all columns of a table that are spokes; name what is missing."""
    for labels, column in zip(table.definition.columns, zip(*table.cells, strict=True), strict=True):
        if table.definition.measure.parts is DOMAINS and DOMAINS[labels["setting"]]:
            continue  # of accuracies per domain only their mean stands for itself
        spoke = f"{table.definition.table}: {', '.join(_varying(table.definition, labels))}"
        built.problems += [f"{spoke}, {cell.labels['method']}: {text}" for cell in column for text in cell.problems]
        known = [(cell, cell.ours) for cell in column if cell.ours is not None]
        data = min((cell.stand_in for cell, _ in known), default="")
        compared = [(cell, ours) for cell, ours in known if cell.stand_in == data]
        if len(compared) < 2:
            built.missing.append(spoke)
            continue
        names = {cell.labels["method"] for cell, _ in compared}
        built.missing += [f"{spoke}, {name}" for cell in column if (name := cell.labels["method"]) not in names]
        best = max(ours.mean for _, ours in compared)
        for cell, ours in compared:
            head = {"series": cell.labels["method"], "stand_in": cell.stand_in, "spoke": spoke}
            yield head | {"mean": ours.mean, "gap": ours.mean - best, "n": ours.n}


def _varying(definition: TableDefinition, column: Labels) -> list[str]:
    axes = [axis for axis in column if len({other.get(axis) for other in definition.columns}) > 1]
    return [column[axis] for axis in axes or column if column[axis]]
