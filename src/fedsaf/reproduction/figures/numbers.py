"""What is drawn, as rows: every kind of figure that has runs of its own, but for embeddings.

A row is one point, bar or field. Its spread is the mean, the smallest and the largest value over seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from fedsaf.reproduction.agreement import Placed, differences
from fedsaf.reproduction.choice import choose
from fedsaf.reproduction.collect import RecordedRun, SetAside
from fedsaf.reproduction.figures.curve_numbers import CURVE_NUMBERS
from fedsaf.reproduction.figures.definition import FigureDefinition, Place
from fedsaf.reproduction.measures import MEASURES, rule_of

Row = dict[str, Any]
MAX_CLIENTS = 9
"""Clients that the bars show: the first ones, as in the paper."""


@dataclass
class Numbers:
    """The content of a figure.

    Attributes:
        rows: what is drawn.
        shown: what the numbers are.
        missing: places without a number, which are left out.
        notes: what a reader should know.
        problems: why runs that seem to belong here do not count.
        tables: further rows that go with the figure, by name.
    """

    rows: list[Row] = field(default_factory=list)
    shown: str = ""
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    tables: dict[str, list[Row]] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """A place and the runs that stand there, at least one."""

    place: Place
    runs: Sequence[RecordedRun]
    stand_in: str

    def head(self) -> Row:
        """Return the first columns of each row."""
        return {"panel": self.place.panel, "series": self.place.series, "stand_in": self.stand_in}


class Gatherer:
    """Finds the runs of a figure, and notes what is missing, wrong or worth knowing.

    Args:
        definition: the figure.
        scale: smoke, small or full; scales are never mixed.
        runs: recorded runs.
        aside: folders that do not count.
    """

    def __init__(
        self, definition: FigureDefinition, scale: str, runs: Sequence[RecordedRun], aside: Sequence[SetAside]
    ) -> None:
        self.definition, self.scale, self._runs, self._aside = definition, scale, runs, aside
        self.numbers = Numbers()
        self._rules: set[str] = set()

    def found(self) -> list[Found]:
        """Return the places that have runs."""
        places = []
        by_panel: dict[tuple[str, str], list[Placed]] = {}
        for place in self.definition.places():
            required = self.definition.requirement(place, self.scale)
            chosen = choose(required, self.scale, self._runs, self._aside)
            by_panel.setdefault((place.panel, chosen.stand_in), []).extend((run, required) for run in chosen.runs)
            self.numbers.notes += [f"{place}: {text}" for text in chosen.notes]
            self.numbers.problems += [f"{place}: {text}" for text in chosen.problems]
            commits = {run.commit for run in chosen.runs} - {None}
            if len(commits) > 1:
                self.numbers.notes.append(f"{place}: runs of {len(commits)} versions of the code")
            if chosen.runs:
                places.append(Found(place, chosen.runs, chosen.stand_in))
            else:
                self.numbers.missing.append(str(place))
        for (panel, _), placed in by_panel.items():
            if different := differences(placed):
                head = f"{panel}: " if panel else ""
                self.numbers.notes.append(f"{head}no fair comparison: run with different {', '.join(different)}")
        return places

    def values(self, found: Found, value: Callable[[RecordedRun], Any]) -> dict[int, Any]:
        """Return the value of each run by its seed; a run without one is a problem, a place without any is missing."""
        values = {}
        for run in found.runs:
            number = value(run)
            if number is None or number == {}:
                self.numbers.problems.append(f"{found.place}: {run.folder.name} has no number of this kind")
                continue
            values[run.seed] = number
            if self.definition.rule:
                self._rules.add(rule_of(run, self.definition.rule).replace("_", " "))
        if not values:
            self.numbers.missing.append(str(found.place))
        return values

    def close(self, shown: str) -> Numbers:
        """Return the numbers, with what they are."""
        self.numbers.shown = shown.format(rule=" or ".join(sorted(self._rules)) or self.definition.rule)
        return self.numbers


def spread(values: Sequence[float]) -> Row:
    """Return mean, smallest, largest and how many; there is at least one value."""
    return {"mean": fmean(values), "low": min(values), "high": max(values), "n": len(values)}


def distinct(rows: Sequence[Row], key: str) -> list[str]:
    """Return the distinct values of a column, in order of appearance."""
    return list(dict.fromkeys(row[key] for row in rows))


def curves(gatherer: Gatherer) -> Numbers:
    """Return one row per series and round, in the rounds that all seeds of the series have."""
    definition, number = gatherer.definition, CURVE_NUMBERS[gatherer.definition.number]
    for found in gatherer.found():
        setting = found.place.labels["setting"]
        lines = gatherer.values(found, lambda run, setting=setting: number.values(run, definition.rule, setting))
        if lines:
            gatherer.numbers.rows += [found.head() | row for row in curve_rows(list(lines.values()), number.has_best)]
    return gatherer.close(number.text)


def curve_rows(lines: Sequence[Mapping[int, float]], has_best: bool) -> list[Row]:
    """Return one row per round that all lines have, with ``best`` for the round of the largest mean after round 0."""
    rounds = sorted(set.intersection(*(set(line) for line in lines)))
    rows = [{"round": t, **spread([line[t] for line in lines])} for t in rounds]
    if has_best:
        trained = [row for row in rows if row["round"] >= 1] or rows
        best = max(trained, key=lambda row: row["mean"], default=None)
        rows = [{**row, "best": row is best} for row in rows]
    return rows


def points(gatherer: Gatherer) -> Numbers:
    """Return one row per place."""
    measure, rule = MEASURES[gatherer.definition.number], gatherer.definition.rule
    for found in gatherer.found():
        values = gatherer.values(found, lambda run: measure.value(run, rule, ""))
        if values:
            row = found.head() | {"point": found.place.point} | found.place.values
            gatherer.numbers.rows.append(row | spread(list(values.values())))
    return gatherer.close(f"{measure.text} in {measure.unit}")


def gains(gatherer: Gatherer) -> Numbers:
    """Return one row per pair of weights: the accuracy, and the gain over both weights 0 in the seeds that have both.

    A panel whose run with both weights 0 is missing has no gains and is left out.
    """
    measure, rule = MEASURES[gatherer.definition.number], gatherer.definition.rule
    panels: dict[str, dict[tuple[float, ...], tuple[Found, dict[int, float]]]] = {}
    for found in gatherer.found():
        values = gatherer.values(found, lambda run: measure.value(run, rule, ""))
        if values:
            panels.setdefault(found.place.panel, {})[tuple(found.place.values.values())] = (found, values)
    for panel, fields in panels.items():
        origin = next((values for weights, (_, values) in fields.items() if not any(weights)), None)
        if origin is None:
            gatherer.numbers.problems.append(f"{panel}: no run with both weights 0, so no gain is known")
            continue
        stand_in = next(found.stand_in for weights, (found, _) in fields.items() if not any(weights))
        for found, values in fields.values():
            differences = [values[seed] - origin[seed] for seed in values if seed in origin]
            if found.stand_in != stand_in or not differences:
                gatherer.numbers.missing.append(f"{found.place} (no run with both weights 0 on the same data and seed)")
                continue
            row = found.head() | found.place.values | spread(differences)
            gatherer.numbers.rows.append(row | {"accuracy": fmean(values.values())})
    return gatherer.close(f"gain in points over both weights 0, same seed, in {measure.text}")


def client_bars(gatherer: Gatherer) -> Numbers:
    """Return one row per series and client, for the first nine clients, in the best round of each run."""
    rule = gatherer.definition.rule
    for found in gatherer.found():
        by_client: dict[int, list[float]] = {}
        names: dict[int, str] = {}
        for accuracies in gatherer.values(found, lambda run: client_accuracies(run, rule)).values():
            for client, (architecture, accuracy) in accuracies.items():
                names[client] = architecture
                if accuracy is not None:
                    by_client.setdefault(client, []).append(accuracy)
        for client, architecture in names.items():
            if client not in by_client:
                gatherer.numbers.missing.append(f"{found.place}, client {client} (no test samples)")
                continue
            row = found.head() | {"client": client, "architecture": architecture}
            gatherer.numbers.rows.append(row | spread(by_client[client]))
    text = "{rule} accuracy in % of each client on its test part, in the round of the best pooled accuracy"
    return gatherer.close(text)


def client_accuracies(run: RecordedRun, rule: str) -> dict[int, tuple[str, float | None]] | None:
    """Return architecture and accuracy in % of the first clients in the run's best round; None if it has none."""
    rule = rule_of(run, rule)
    best = (run.summary.get(rule) or {}).get("best")
    if best is None:
        return None
    rows = [row for row in run.client_rows if row["round"] == best["round"] and row["client"] < MAX_CLIENTS]
    return {
        row["client"]: (row.get("architecture", ""), None if row.get(rule) is None else 100 * row[rule]) for row in rows
    }
