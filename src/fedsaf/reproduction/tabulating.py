"""Tables of a report: a frame of cells, each from the runs that the sweep would start, or empty with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from fedsaf.reproduction.comparable import changes_nothing, comparable
from fedsaf.reproduction.composer import Composer
from fedsaf.reproduction.experiments import Display, default_composer
from fedsaf.reproduction.gathering import gather, spread
from fedsaf.reproduction.matching import Matcher
from fedsaf.reproduction.numbers import NUMBERS, Number
from fedsaf.reproduction.paper import printed

ROW, COLUMN = ROLES = ("rows", "columns")
NUM_RANKS = 3
"""How many of a column are marked."""


@dataclass(frozen=True, eq=False)
class Table:
    """A table and what recorded runs say.

    Attributes:
        display: its definition.
        scale: smoke, small or full; scales are never mixed.
        words: what was set for every run beside the definition, and changes numbers.
        shown: what a cell shows.
        cells: a row per cell: names in ``rows`` and ``columns``, the labels, what `spread` says, ``paper`` (the printed
            number or None), ``difference`` (ours minus the paper's, at scale full), ``rank`` (1 to 3 within the column,
            or missing), and what `gather` says of a place.
    """

    display: Display
    scale: str
    words: tuple[str, ...]
    shown: str
    cells: pd.DataFrame

    @property
    def number(self) -> Number:
        """What a cell shows."""
        return NUMBERS[self.display.node["shows"]]

    @property
    def num_filled(self) -> int:
        """How many cells have a number of ours."""
        return int(self.cells["n"].gt(0).sum())

    @property
    def problems(self) -> list[str]:
        """Why runs that seem to belong here do not count, each once."""
        return list(self.cells["problems"].explode().dropna().unique())


def fill(
    display: Display, scale: str, matcher: Matcher, words: Sequence[str] = (), composer: Composer | None = None
) -> Table:
    """Fill a table from recorded runs of one scale.

    Args:
        display: the table.
        scale: smoke, small or full.
        matcher: of recorded runs.
        words: what was set for every run beside the definition. Where one changes numbers and is not swept, ours are
            not the printed experiment, whose numbers are left out.
        composer: of configurations; None for the one of the checkout.
    """
    composer, node = composer or default_composer(), display.node
    number, rule = NUMBERS[node["shows"]], node["rule"]
    once = {(place.name(ROW), place.name(COLUMN)): place for place in display.places(ROLES, scale, words, composer)}
    cells, values = gather(once.values(), matcher, number, rule)
    cells = cells.join(spread(values["value"], values["place"]))
    cells["n"] = cells["n"].fillna(0).astype(int)
    swept = {key for block in display.blocks for key in block.experiment.sweep}
    added = tuple(word for word in words if word.partition("=")[0] not in swept and not changes_nothing(word))
    papers = [None if added else printed(*node["printed"], place.labels) for place in cells["place"]]
    cells["paper"] = papers
    means = pd.Series([float(paper.mean) if paper and scale == "full" else None for paper in papers], dtype=float)
    cells["difference"] = cells["mean"] - means
    cells["rank"] = pd.Series(pd.NA, cells.index, "Int64")
    free = display.free(ROW, composer)
    for _, column in cells[cells["n"] > 0].groupby(COLUMN, sort=False):
        _compare(cells, column, number.best, free)
    rules = {run.rule(rule).replace("_", " ") for members in cells["members"] for run in members}
    return Table(display, scale, added, number.text.format(rule=" or ".join(sorted(rules)) or rule), cells)


def _compare(cells: pd.DataFrame, column: pd.DataFrame, best: str, free: set[str]) -> None:
    """Mark the best three of a column, where there is something to compare; equal means share a rank.

    Numbers of different data are not compared: where data sets stand in, only cells of the most faithful one count.
    Nor are numbers of runs that are not comparable, which is noted.
    """
    column = column[column["stand_in"] == column["stand_in"].min()]  # the empty name, of the data themselves, is least
    if len(column) < 2:
        return
    if different := comparable((run.config for members in column["members"] for run in members), free):
        text = f"no fair comparison: the rows of this column were run with different {', '.join(different)}"
        for notes in column["notes"]:
            notes.append(text)
    elif best:
        ranks = column["mean"].rank(method="min", ascending=best == "low").astype("Int64")
        cells.loc[column.index, "rank"] = ranks.where(ranks <= NUM_RANKS)
