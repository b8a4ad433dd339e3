"""Runs of any experiment by cell, for figures that follow no paper: equal but for the seed is one cell."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fedsaf.reproduction.collect import RecordedRun
from fedsaf.reproduction.figures.numbers import Row, curve_rows
from fedsaf.tracking.closing import read_run, settings_of


@dataclass(frozen=True)
class RunCell:
    """Runs that differ in nothing but the seed.

    Attributes:
        name: what tells the cell from the others.
        runs: one per seed.
    """

    name: str
    runs: Sequence[RecordedRun]


def cells_of(runs: Sequence[RecordedRun]) -> list[RunCell]:
    """Group runs by everything but the seed, in order of appearance; the same run met twice counts once.

    A cell is named by its method, alignment and partition and by whatever else differs among the runs; if that does not
    tell two cells apart, by the hash of a run too.
    """
    settings = settings_of([read_run(run.folder) for run in runs])
    groups: dict[str, dict[int, RecordedRun]] = {}
    names: dict[str, str] = {}
    for run, labels in zip(runs, settings, strict=True):
        key = json.dumps(run.values, sort_keys=True)
        groups.setdefault(key, {}).setdefault(run.seed, run)
        names.setdefault(key, ", ".join(value for value in labels.values() if value != "-"))
    taken = list(names.values())
    cells = []
    for key, by_seed in groups.items():
        first = next(iter(by_seed.values()))
        suffix = f" ({first.summary['config_hash'][:6]})" if taken.count(names[key]) > 1 else ""
        cells.append(RunCell(names[key] + suffix, list(by_seed.values())))
    return cells


def cell_curves(
    runs: Sequence[RecordedRun], values: Callable[[RecordedRun], Mapping[int, float]], has_best: bool
) -> list[Row]:
    """Return one row per cell and round, as `curve_rows` has them; a run without values does not count.

    Args:
        runs: of any experiments.
        values: run -> value by round.
        has_best: whether the best round is marked.
    """
    rows: list[Row] = []
    for cell in cells_of(runs):
        lines = [line for line in map(values, cell.runs) if line]
        if lines:
            rows += [{"series": cell.name, **row} for row in curve_rows(lines, has_best)]
    return rows
