"""Definitions of tables, as data: which labels a table has, and which recorded values a run in a cell must have.

A run is selected by what it recorded, never by the name of its folder or by the table it was made for; so a run serves
every table in which its cell stands.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fedsaf.core.config import nearest
from fedsaf.reproduction.measures import MEASURES, Measure
from fedsaf.reproduction.paper import AXES

SCALES = ("smoke", "small", "full")
DEFINITIONS = Path(__file__).resolve().parent / "definitions"
DATASET, STAND_IN = "dataset", "stand_in_for"
OF_DATA = "of_data"
"""Values of a protocol that depend on the label of the data set."""

Labels = dict[str, str]
Requirement = Mapping[str, Any]


@dataclass(frozen=True)
class TableDefinition:
    """One table of a paper.

    Attributes:
        name: what the report calls it, such as saf-t3.
        title: heading.
        target: what ``make`` calls its runs.
        paper: whose printed numbers stand beside ours.
        table: its number there.
        measure: what a cell shows.
        rule: prediction rule, or ``reported``.
        protocol: values that every run must have.
        rows: labels of each row.
        columns: labels of each column.
        fixed: labels of all cells.
    """

    name: str
    title: str
    target: str
    paper: str
    table: str
    measure: Measure
    rule: str
    protocol: Requirement
    rows: Sequence[Labels]
    columns: Sequence[Labels]
    fixed: Labels

    def labels(self, row: Labels, column: Labels) -> Labels:
        """Return the labels of a cell, one for every axis."""
        return dict.fromkeys(AXES, "") | self.fixed | row | column

    def requirement(self, labels: Labels, scale: str) -> dict[str, Any]:
        """Return what a run must have recorded to stand in the cell with these labels."""
        return requirement_of(self.protocol, labels, scale, self.measure.parts)


def requirement_of(
    protocol: Requirement, labels: Labels, scale: str, parts: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return what a run must have recorded to stand under these labels.

    Args:
        protocol: values that every run must have.
        labels: one for every axis.
        scale: smoke, small or full.
        parts: settings that name a part of one run rather than another run; None if there are none.
    """
    required: dict[str, Any] = {"scale": scale, STAND_IN: None} | _in_scale(protocol, scale)
    required |= (protocol.get(OF_DATA) or {}).get(labels[DATASET], {})
    for axis in AXES:
        if axis == "setting" and parts is not None:
            continue
        required |= _in_scale(_vocabulary()[axis][labels[axis]], scale)
    return required


def satisfies(settings: Mapping[str, Any], requirement: Requirement) -> bool:
    """Return whether a run recorded everything that is required.

    >>> satisfies({"dataset": "digits", "weight": 1}, {"dataset": ["digits", "cifar10"], "weight": 1.0})
    True
    """
    return all(key in settings and _fits(settings[key], wanted) for key, wanted in requirement.items())


def on_stand_in(requirement: Requirement) -> dict[str, Any]:
    """Return the requirement that a run on another data set meets, which was used in place of the required one."""
    required = {key: value for key, value in requirement.items() if key != DATASET}
    return required | {STAND_IN: requirement[DATASET]}


@cache
def table_definitions() -> dict[str, TableDefinition]:
    """Return all tables by name.

    Raises:
        ValueError: a label is not in the vocabulary, or an axis is named twice; the message names table and label.
    """
    content = load_definitions("tables.yaml")
    tables = {name: _definition(name, entry, content["protocols"]) for name, entry in content["tables"].items()}
    for table in tables.values():
        for row, column in itertools.product(table.rows, table.columns):
            check_labels(f"table {table.name}", table.labels(row, column), table.measure.parts)
    return tables


def tables_of(names: Sequence[str]) -> list[TableDefinition]:
    """Return the tables with these names or targets, in the order of the definitions.

    Raises:
        ValueError: nothing is called so; the message names the nearest.
    """
    return called(names, table_definitions().values(), "table")


def called(names: Sequence[str], known: Iterable[Any], kind: str) -> list[Any]:
    """Return the definitions with these names or targets; ValueError, with the nearest, for one that nobody has."""
    known = list(known)
    every = {text for one in known for text in (one.name, one.target)}
    for name in names:
        if name not in every:
            raise ValueError(f"no {kind} is called {name!r}; {nearest(name, every)}")
    return [one for one in known if one.name in names or one.target in names]


def _definition(name: str, entry: Mapping[str, Any], protocols: Mapping[str, Requirement]) -> TableDefinition:
    values = {key: entry[key] for key in ("title", "target", "paper", "table", "rule")}
    return TableDefinition(
        name=name,
        measure=MEASURES[entry["measure"]],
        protocol=protocols[entry["protocol"]],
        rows=list(products(entry["rows"])),
        columns=list(products(entry["columns"])),
        fixed=dict(entry["fixed"]),
        **values,
    )


def products(blocks: Sequence[Mapping[str, Any]]) -> Iterator[Labels]:
    """Yield the labels of each element: a block is the product of its labels, the first axis slowest."""
    for block in blocks:
        choices = [labels if isinstance(labels, list) else [labels] for labels in block.values()]
        for combination in itertools.product(*choices):
            yield dict(zip(block, combination, strict=True))


def check_labels(owner: str, labels: Labels, parts: Mapping[str, Any] | None) -> None:
    """Raise ValueError, naming the owner, if a label is not in the vocabulary, or no part where parts are named."""
    for axis, label in labels.items():
        known = parts if axis == "setting" and parts is not None else _vocabulary()[axis]
        if label not in known:
            raise ValueError(f"{owner}: {axis} {label!r} is not in the vocabulary")


def _in_scale(values: Requirement, scale: str) -> dict[str, Any]:
    plain = {key: value for key, value in values.items() if key not in ("scales", "weights", OF_DATA)}
    weights = weights_of(values["weights"], scale) if "weights" in values else {}
    keys = {f"alignment.{key}": value for key, value in weights.items()}
    return plain | keys | (values.get("scales") or {}).get(scale, {})


def weights_of(alignment: str, scale: str) -> dict[str, float]:
    """Return the weights of both levels that a loss has at a scale unless a run asks for others."""
    by_scale = load_definitions("weights.yaml")
    return (by_scale.get(scale) or {}).get(alignment) or by_scale["default"][alignment]


def _fits(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, list):
        return any(_fits(value, element) for element in wanted)
    if isinstance(wanted, bool) or isinstance(value, bool):
        return value is wanted
    return value == wanted


def _vocabulary() -> dict[str, dict[str, Any]]:
    return load_definitions("vocabulary.yaml")


@cache
def load_definitions(name: str) -> dict[str, Any]:
    """Return the content of a file of definitions; not to be changed."""
    return yaml.safe_load((DEFINITIONS / name).read_text(encoding="utf-8"))
