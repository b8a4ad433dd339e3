"""Claims of the papers, as data: what is compared, in which runs, and what would show that a claim holds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import Any

from fedsaf.reproduction.claims.contrasts import CONTRASTS, SIDES
from fedsaf.reproduction.claims.numbers import NUMBERS
from fedsaf.reproduction.figures.definition import PARTS, FigureDefinition, Place, figure_definitions
from fedsaf.reproduction.measures import Measure
from fedsaf.reproduction.paper import AXES, printed
from fedsaf.reproduction.selection import (
    Labels,
    TableDefinition,
    check_labels,
    load_definitions,
    products,
    table_definitions,
)

Source = TableDefinition | FigureDefinition
EXTREMES = {"max": max, "min": min}
TAKES = {"mean": fmean, **EXTREMES}
"""How the places of an arm become one."""
TAKE_NAMES = {"mean": "mean", "max": "largest", "min": "smallest"}
ORDERING = "ordering"


@dataclass(frozen=True)
class Spot:
    """One place of an arm: whose runs give one number per seed.

    Attributes:
        labels: one for every axis.
        values: swept values by the name that is drawn.
        name: what tells it apart within its claim.
    """

    labels: Labels
    values: Mapping[str, float]
    name: str


@dataclass(frozen=True)
class Arm:
    """One side of a comparison.

    Attributes:
        spots: places, at least one.
        take: how they become one number.
        number: which number of a run.
        name: for a reader.
    """

    spots: tuple[Spot, ...]
    take: str
    number: Measure
    name: str


@dataclass(frozen=True)
class Part:
    """One test of a claim.

    Attributes:
        name: what tells it apart within the claim; empty for the only one.
        arms: in the order in which the test takes them.
    """

    name: str
    arms: tuple[Arm, ...]


@dataclass(frozen=True)
class Claim:
    """One claim.

    Attributes:
        name: what the report calls it; claims that differ in data or partition only share the first part.
        text: what the paper says, with the labels of the line.
        paper: where.
        source: the table or figure whose runs decide it.
        test: one of `CONTRASTS`.
        parts: all must hold.
        side: where the effect lies if the claim holds.
        bound: of the effect, as shown.
        exact: whether the number has no noise, so that one run decides.
        remark: how words of the paper are read; may be empty.
    """

    name: str
    text: str
    paper: str
    source: Source
    test: str
    parts: tuple[Part, ...]
    side: str
    bound: float
    exact: bool
    remark: str

    @property
    def comparison(self) -> str:
        """What is compared, for a reader; the parts name their own arms where these differ between them."""
        texts = {self._compared(part) for part in self.parts}
        return texts.pop() if len(texts) == 1 else CONTRASTS[self.test].text.format(high="the first", low="the second")

    def _compared(self, part: Part) -> str:
        names = [arm.name for arm in part.arms]
        return CONTRASTS[self.test].text.format(high=names[0], low=names[-1])

    @property
    def rule(self) -> str:
        """Prediction rule of accuracies."""
        return self.source.rule

    def requirement(self, spot: Spot, scale: str) -> dict[str, Any]:
        """Return what a run must have recorded to stand at a place."""
        if isinstance(self.source, TableDefinition):
            return self.source.requirement(spot.labels, scale)
        return self.source.requirement(Place("", "", "", spot.labels, spot.values), scale)

    def printed(self, part: Part) -> float | None:
        """Return the effect in the numbers that the paper prints; None if it does not print all of them."""
        if not isinstance(self.source, TableDefinition):
            return None
        arms = []
        for arm in part.arms:
            found = [printed(self.source.paper, self.source.table, spot.labels) for spot in arm.spots]
            if None in found or arm.number is not self.source.measure:
                return None
            arms.append(TAKES[arm.take]([float(value.mean) for value in found]))
        contrast = CONTRASTS[self.test]
        return contrast.shown(contrast.combine(arms))


@cache
def claim_definitions() -> dict[str, Claim]:
    """Return all claims by name, in the order of the file.

    Raises:
        ValueError: a definition names what does not exist; the message names the claim.
    """
    claims = {}
    for name, entry in load_definitions("claims.yaml")["claims"].items():
        for claim in claims_of(name, entry):
            claims[claim.name] = claim
    return claims


def claims_of(name: str, entry: Mapping[str, Any]) -> Iterator[Claim]:
    """Yield a claim for each line of a definition.

    Raises:
        ValueError: the definition names a test, side, number or label that does not exist.
    """
    sources: dict[str, Source] = {**figure_definitions(), **table_definitions()}
    test = "difference" if entry["test"] == ORDERING else entry["test"]
    _check(name, "source", entry["source"], sources)
    _check(name, "test", test, CONTRASTS)
    _check(name, "side", entry.get("side", "above"), SIDES)
    source = sources[entry["source"]]
    for line in products([entry.get("lines", {})]):
        label = ", ".join(line.values())
        yield Claim(
            name=f"{name} ({label})" if label else name,
            text=f"{label}: {entry['claim']}" if label else entry["claim"],
            paper=entry["paper"],
            source=source,
            test=test,
            parts=tuple(_parts(name, entry, source, line)),
            side=entry.get("side", "above"),
            bound=float(entry.get("bound", CONTRASTS[test].null)),
            exact=entry.get("exact", False),
            remark=entry.get("remark", ""),
        )


def _parts(name: str, entry: Mapping[str, Any], source: Source, line: Labels) -> Iterator[Part]:
    """Yield the parts of a line: products of labels, then variants, then neighbours of an ordering."""
    is_pair_named = entry["test"] == ORDERING or "variants" in entry
    for labels, variant in itertools.product(products([entry.get("parts", {})]), entry.get("variants", [{}])):
        texts = [str(label) if key in AXES else f"{key}={label:g}" for key, label in labels.items()]
        for steps, sides in _comparisons(entry, variant):
            common = line | labels | entry.get("arm", {})
            arms = [_arm(name, entry, source, common | step, side) for step in steps for side in sides]
            named = [f"{arms[0].name} against {arms[1].name}"] if is_pair_named else []
            yield Part(", ".join([*texts, *named]), tuple(arms))


def _comparisons(entry: Mapping[str, Any], variant: Mapping[str, Any]) -> Iterator[tuple[list[Labels], list[Labels]]]:
    """Yield the steps and the sides of each comparison; one without labels stands for no step."""
    steps = list(products([entry.get("steps", {})]))
    if entry["test"] == ORDERING:
        yield from ((steps, [*pair]) for pair in itertools.pairwise(products([entry["order"]])))
    elif entry["test"] == "level":
        yield steps, [entry["high"]]
    else:
        yield steps, [entry.get(side, {}) | variant.get(side, {}) for side in ("high", "low")]


def _arm(name: str, entry: Mapping[str, Any], source: Source, common: Labels, side: Mapping[str, Any]) -> Arm:
    content = common | {key: value for key, value in side.items() if key not in ("take", "number")}
    take, number = side.get("take", "mean"), side.get("number", entry.get("number"))
    _check(name, "take", take, TAKES)
    if number is not None:
        _check(name, "number", number, NUMBERS)
    elif isinstance(source, FigureDefinition):
        number = source.number
        _check(name, f"number of {source.name}", number, NUMBERS)
    sweep = source.sweep if isinstance(source, FigureDefinition) else {}
    if unknown := content.keys() - {*AXES, *sweep}:
        raise ValueError(f"claim {name}: {', '.join(sorted(unknown))} is neither an axis nor swept by {source.name}")
    if unswept := sweep.keys() - content.keys():
        raise ValueError(f"claim {name}: {', '.join(sorted(unswept))} has no value")
    parts = PARTS.get(source.number) if isinstance(source, FigureDefinition) else source.measure.parts
    spots = []
    for choice in products([content]):
        labels = dict.fromkeys(AXES, "") | source.fixed | {axis: choice[axis] for axis in AXES if axis in choice}
        check_labels(f"claim {name}", labels, parts)
        values = {key: choice[key] for key in sweep}
        texts = [label for label in labels.values() if label] + [f"{key}={value:g}" for key, value in values.items()]
        spots.append(Spot(labels, values, ", ".join(texts)))
    measure = source.measure if number is None else NUMBERS[number]
    return Arm(tuple(spots), take, measure, _name_of(side, take))


def _name_of(side: Mapping[str, Any], take: str) -> str:
    """Return what a reader calls an arm."""
    texts, grid = [], []
    for key, value in side.items():
        if key == "number":
            texts.append(value.replace("_", " "))
        elif isinstance(value, list) and key in AXES:
            texts.append(f"{TAKE_NAMES[take]} of {', '.join(value)}")
        elif isinstance(value, list):
            grid.append(f"{key} from {value[0]:g} to {value[-1]:g}")
        elif key != "take":
            texts.append(str(value) if key in AXES else f"{key}={value:g}")
    texts += [f"{TAKE_NAMES[take]} over {' and '.join(grid)}"] if grid else []
    return ", ".join(texts) or "the number"


def _check(name: str, what: str, word: str, known: Mapping[str, Any]) -> None:
    if word not in known:
        raise ValueError(f"claim {name}: {what} is {word!r}, expected one of {', '.join(known)}")
