"""Definitions of figures, as data: which runs have a place in a figure, and where."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from fedsaf.reproduction.measures import MARGINS
from fedsaf.reproduction.paper import AXES
from fedsaf.reproduction.selection import (
    Labels,
    Requirement,
    called,
    check_labels,
    load_definitions,
    products,
    requirement_of,
    table_definitions,
)

PARTS: dict[str, Mapping[str, Any]] = {"margins": MARGINS}
"""Numbers of a figure whose setting names a part of one run."""


@dataclass(frozen=True)
class Place:
    """Where the runs of one configuration stand.

    Attributes:
        panel: its name; empty in a figure of one panel.
        series: name of the line or the bars; empty if there is one.
        point: name on the axis; empty where a run is not one point.
        labels: label by axis.
        values: swept values by the name that is drawn.
    """

    panel: str
    series: str
    point: str
    labels: Labels
    values: Mapping[str, float]

    def __str__(self) -> str:
        names = [self.panel, self.series, self.point, *(f"{name}={value:g}" for name, value in self.values.items())]
        return ", ".join(name for name in names if name)


@dataclass(frozen=True)
class FigureDefinition:
    """One figure of a paper.

    Attributes:
        name: what the report calls it, such as saf-f7.
        title: heading.
        target: what ``make`` calls its runs.
        kind: how it is drawn.
        number: what is drawn.
        rule: prediction rule, ``reported``, or empty where no accuracy is drawn.
        protocol: values that every run must have.
        fixed: labels of all places.
        panels: labels of each panel.
        series: labels of each series.
        points: labels of each point.
        sweep: by drawn name, the ``key`` of the configuration and its ``values``.
        tables: names of the tables of each panel, of a figure without runs of its own.
    """

    name: str
    title: str
    target: str
    kind: str
    number: str
    rule: str
    protocol: Requirement
    fixed: Labels
    panels: Sequence[Labels]
    series: Sequence[Labels]
    points: Sequence[Labels]
    sweep: Mapping[str, Mapping[str, Any]]
    tables: Sequence[Sequence[str]]

    @property
    def series_names(self) -> list[str]:
        """Names of the series, in order."""
        return [_name(series) for series in self.series]

    @property
    def run_targets(self) -> list[str]:
        """Targets whose runs it shows: its own, or those of its tables."""
        names = [name for panel in self.tables for name in panel]
        return [table_definitions()[name].target for name in names] or [self.target]

    def places(self) -> Iterator[Place]:
        """Yield every place, panels slowest."""
        swept = list(itertools.product(*(entry["values"] for entry in self.sweep.values())))
        for panel, series, point, values in itertools.product(self.panels, self.series, self.points, swept):
            labels = dict.fromkeys(AXES, "") | self.fixed | panel | series | point
            yield Place(_name(panel), _name(series), _name(point), labels, dict(zip(self.sweep, values, strict=True)))

    def requirement(self, place: Place, scale: str) -> dict[str, Any]:
        """Return what a run must have recorded to stand at a place."""
        required = requirement_of(self.protocol, place.labels, scale, PARTS.get(self.number))
        return required | {self.sweep[name]["key"]: value for name, value in place.values.items()}


@cache
def figure_definitions() -> dict[str, FigureDefinition]:
    """Return all figures by name.

    Raises:
        ValueError: a label is not in the vocabulary, or a table does not exist; the message names the figure.
    """
    content = load_definitions("figures.yaml")
    protocols = load_definitions("tables.yaml")["protocols"] | content["protocols"]
    figures = {name: _definition(name, entry, protocols) for name, entry in content["figures"].items()}
    for figure in figures.values():
        for place in figure.places():
            check_labels(f"figure {figure.name}", place.labels, PARTS.get(figure.number))
        if unknown := {table for panel in figure.tables for table in panel} - table_definitions().keys():
            raise ValueError(f"figure {figure.name}: no such table: {', '.join(sorted(unknown))}")
    return figures


def figures_of(names: Sequence[str]) -> list[FigureDefinition]:
    """Return the figures with these names or targets, in the order of the definitions.

    Raises:
        ValueError: nothing is called so; the message names the nearest.
    """
    return called(names, figure_definitions().values(), "figure")


def _definition(name: str, entry: Mapping[str, Any], protocols: Mapping[str, Requirement]) -> FigureDefinition:
    tables = entry.get("tables", [])
    alone = [] if tables else [{}]  # a figure of tables has no place for runs
    return FigureDefinition(
        name=name,
        title=entry["title"],
        target=entry["target"],
        kind=entry["kind"],
        number=entry.get("number", ""),
        rule=entry.get("rule", ""),
        protocol=protocols[entry["protocol"]] if "protocol" in entry else {},
        fixed=dict(entry.get("fixed", {})),
        panels=list(products(entry["panels"])) if "panels" in entry else alone,
        series=list(products(entry["series"])) if "series" in entry else alone,
        points=list(products(entry["points"])) if "points" in entry else alone,
        sweep=entry.get("sweep", {}),
        tables=tables,
    )


def _name(labels: Labels) -> str:
    return ", ".join(label for label in labels.values() if label)
