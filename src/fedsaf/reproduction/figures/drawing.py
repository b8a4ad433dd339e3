"""Curves, lines, bars and pairs. What is drawn is what the rows say; a row that is not there leaves a gap."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedsaf.reproduction.figures.curve_numbers import CURVE_NUMBERS
from fedsaf.reproduction.figures.definition import FigureDefinition
from fedsaf.reproduction.figures.numbers import Numbers, Row, distinct
from fedsaf.reproduction.figures.style import bar_style, every_mark, legend, line_style, panels, signed

MAX_BANDS = 5
"""Series whose ranges are drawn; of more they would hide each other, and stand in the CSV alone."""


def draw_curves(figure: Figure, definition: FigureDefinition, numbers: Numbers) -> None:
    """Draw lines over rounds, the best round of each marked by a star."""
    number = CURVE_NUMBERS[definition.number]
    names = distinct(numbers.rows, "panel")
    axes = panels(figure, names, sharey=False)
    for panel, name in zip(axes, names, strict=True):
        curve_panel(panel, [row for row in numbers.rows if row["panel"] == name], definition.series_names)
        panel.set_xlabel("communication round")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0].set_ylabel(number.axis)
    legend(figure, axes, definition.series_names)


def curve_panel(axes: Axes, rows: Sequence[Row], order: Sequence[str]) -> None:
    """Draw the curves of one panel; ``order`` fixes the style of each series."""
    with_band = len({row["series"] for row in rows}) <= MAX_BANDS
    for index, name in enumerate(order):
        own = [row for row in rows if row["series"] == name]
        if not own:
            continue
        rounds, means = [row["round"] for row in own], [row["mean"] for row in own]
        look = line_style(index)
        axes.plot(rounds, means, label=name, markevery=every_mark(len(own)), **look)
        if with_band and max(row["n"] for row in own) > 1:
            lows, highs = [row["low"] for row in own], [row["high"] for row in own]
            axes.fill_between(rounds, lows, highs, color=look["color"], alpha=0.18, linewidth=0)
        for row in own:
            if row.get("best"):
                axes.plot(
                    row["round"], row["mean"], marker="*", markersize=12, color=look["color"], markeredgecolor="black"
                )


def draw_lines(figure: Figure, definition: FigureDefinition, numbers: Numbers) -> None:
    """Draw lines over one swept value, at even distances, with whiskers from the smallest to the largest seed."""
    ((swept, entry),) = definition.sweep.items()
    names, values = distinct(numbers.rows, "panel"), list(entry["values"])
    axes = panels(figure, names)
    series = definition.series_names
    for panel, name in zip(axes, names, strict=True):
        for index, one in enumerate(series):
            own = {row[swept]: row for row in numbers.rows if (row["panel"], row["series"]) == (name, one)}
            if own:
                shift = 0.3 * (index / max(1, len(series) - 1) - 0.5)  # whiskers beside each other
                places = [i + shift for i in range(len(values))]
                means, errors = _with_gaps([own.get(value) for value in values])
                panel.errorbar(places, means, yerr=errors, label=one, elinewidth=0.7, capsize=1.5, **line_style(index))
        panel.set_xticks(range(len(values)), [f"{value:g}" for value in values])
        panel.set_xlabel(swept)
    axes[0].set_ylabel("accuracy in %")
    legend(figure, axes, definition.series_names)


def draw_client_bars(figure: Figure, definition: FigureDefinition, numbers: Numbers) -> None:
    """Draw a group of bars per client, one bar per series, with whiskers from the smallest to the largest seed."""
    names = distinct(numbers.rows, "panel")
    axes = panels(figure, [""], rows=len(names), height=0.9) if len(names) > 1 else panels(figure, [""])
    figure.set_size_inches(9.5, figure.get_size_inches()[1])
    for panel, name in zip(axes, names, strict=True):
        panel.set_title(name)
        bar_panel(panel, [row for row in numbers.rows if row["panel"] == name], definition.series_names)
    legend(figure, axes, definition.series_names)


def bar_panel(axes: Axes, rows: Sequence[Row], order: Sequence[str]) -> None:
    """Draw the bars of one panel; ``order`` fixes the style of each series."""
    clients = {row["client"]: row["architecture"] for row in sorted(rows, key=lambda row: row["client"])}
    ticks = {client: place for place, client in enumerate(clients)}
    width = 0.8 / len(order)
    for index, name in enumerate(order):
        own = [row for row in rows if row["series"] == name]
        if not own:
            continue
        places = [ticks[row["client"]] + (index - (len(order) - 1) / 2) * width for row in own]
        means, errors = _with_gaps(own)
        axes.bar(places, means, width, label=name, **bar_style(index))
        axes.errorbar(places, means, yerr=errors, fmt="none", ecolor="black", elinewidth=0.7, capsize=1.5)
    axes.set_xticks(range(len(clients)), [f"{client}\n{name}" for client, name in clients.items()], fontsize=7)
    axes.set(xlabel="client and its network", ylabel="accuracy in %")
    axes.grid(False, axis="x")


def draw_pairs(figure: Figure, definition: FigureDefinition, numbers: Numbers) -> None:
    """Draw two marks per constructor and point, joined: its own alignment hollow, the other one filled."""
    names, series = distinct(numbers.rows, "panel"), definition.series_names
    pairs, points = (
        list(zip(series[::2], series[1::2], strict=True)),
        [point["partition"] for point in definition.points],
    )
    axes = panels(figure, names, sharey=False)
    for panel, name in zip(axes, names, strict=True):
        ticks = []
        for i, point in enumerate(points):
            for j, pair in enumerate(pairs):
                place = i * (len(pairs) + 1) + j
                ticks.append((place, f"{pair[0]}, {point}"))
                found = {row["series"]: row for row in numbers.rows if (row["panel"], row["point"]) == (name, point)}
                _pair(panel, place, j, [found.get(one) for one in pair])
        panel.set_xticks(
            [place for place, _ in ticks], [text for _, text in ticks], rotation=60, ha="right", fontsize=7
        )
        panel.margins(y=0.12)
        panel.set_xlim(-0.7, ticks[-1][0] + 0.7)
    axes[0].set_ylabel("accuracy in %")
    legend(figure, axes, definition.series_names)


def _pair(axes: Axes, place: float, index: int, pair: Sequence[Row | None]) -> None:
    look = line_style(index)
    if all(pair):
        axes.plot([place, place], [row["mean"] for row in pair], color="grey", linewidth=0.8, zorder=1)
        gain = pair[1]["mean"] - pair[0]["mean"]
        axes.annotate(
            signed(gain, 2),
            (place, max(row["high"] for row in pair)),
            xytext=(0, 4),
            textcoords="offset points",
            ha="center",
            fontsize=6.5,
        )
    for row, filled, shift in zip(pair, (False, True), (-0.12, 0.12), strict=True):
        if row is not None:
            means, errors = _with_gaps([row])
            axes.errorbar(
                [place + shift],
                means,
                yerr=errors,
                color=look["color"],
                marker=look["marker"],
                linestyle="none",
                elinewidth=0.7,
                capsize=1.5,
                markerfacecolor=look["color"] if filled else "white",
                label=row["series"],
            )


def _with_gaps(rows: Sequence[Row | None]) -> tuple[list[float], list[list[float]]]:
    """Return means, and distances to the smallest and largest seed; NaN, which is not drawn, where there is no row."""
    empty = {"mean": math.nan, "low": math.nan, "high": math.nan}
    full = [row or empty for row in rows]
    return (
        [row["mean"] for row in full],
        [[row["mean"] - row["low"] for row in full], [row["high"] - row["mean"] for row in full]],
    )
