"""Heat maps, embeddings and radars, drawn from rows; a row that is not there leaves a gap."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedsaf.reproduction.figures.definition import FigureDefinition
from fedsaf.reproduction.figures.embedding import mean_silhouette
from fedsaf.reproduction.figures.numbers import Numbers, Row, distinct
from fedsaf.reproduction.figures.style import COLOURS, legend, line_style, panels, signed

DARK = 0.6
"""Share of the largest gain from which a field is so dark that its text is white."""


def draw_heat_maps(figure: Figure, definition: FigureDefinition, numbers: Numbers) -> None:
    """Draw one field per pair of weights with its gain written into it; a field that was not run is blank."""
    names = distinct(numbers.rows, "panel")
    axes = panels(figure, names, height=1.05)
    limit = max(abs(row["mean"]) for row in numbers.rows) or 1.0
    for panel, name in zip(axes, names, strict=True):
        _heat_map(panel, definition, [row for row in numbers.rows if row["panel"] == name], limit)
    figure.colorbar(axes[0].collections[0], ax=axes, label="gain in points")


def _heat_map(axes: Axes, definition: FigureDefinition, rows: Sequence[Row], limit: float) -> None:
    (down, up), (downs, ups) = definition.sweep, (list(entry["values"]) for entry in definition.sweep.values())
    gains = np.full((len(downs), len(ups)), np.nan)
    for row in rows:
        i, j, gain = downs.index(row[down]), ups.index(row[up]), row["mean"]
        gains[i, j] = gain
        text = signed(gain, 2) if row[down] or row[up] else "0\n(reference)"
        colour = "white" if abs(gain) > DARK * limit else "black"
        axes.text(j, i, text, ha="center", va="center", fontsize=7, color=colour)
    axes.pcolormesh(
        np.arange(len(ups)),
        np.arange(len(downs)),
        np.ma.masked_invalid(gains),
        cmap="PuOr",
        vmin=-limit,
        vmax=limit,
        edgecolor="white",
        shading="nearest",
    )
    axes.set_xticks(range(len(ups)), [f"{value:g}" for value in ups])
    axes.set_yticks(range(len(downs)), [f"{value:g}" for value in downs])
    axes.set(xlabel=up, ylabel=down)
    axes.grid(False)


def draw_embeddings(figure: Figure, definition: FigureDefinition, numbers: Numbers) -> None:
    """Draw every prototype twice, above as the number of its class, below as the number of its client."""
    names = distinct(numbers.rows, "panel")
    axes = panels(figure, names, rows=2)
    for column, name in enumerate(names):
        rows = [row for row in numbers.rows if row["panel"] == name]
        own = [row for row in numbers.tables["silhouettes"] if row["panel"] == name]
        for line, group in enumerate(("class", "client")):
            panel = axes[line * len(names) + column]
            embedding_panel(panel, rows, group)
            value = mean_silhouette(own, f"by_{group}")
            text = f"silhouette by {group} " + (
                "undefined" if value is None else f"{signed(value, 3)} (n = {len(own)})"
            )
            panel.set_title(f"{name}\n{text}" if line == 0 else text)


def embedding_panel(axes: Axes, rows: Sequence[Row], group: str) -> None:
    """Draw every prototype as the number of its ``class`` or ``client``; colours repeat, numbers do not."""
    for row in rows:
        colour = COLOURS[row[group] % len(COLOURS)]
        axes.plot(row["x"], row["y"], ".", markersize=1, color=colour)
        axes.text(row["x"], row["y"], str(row[group]), color=colour, fontsize=7, ha="center", va="center", clip_on=True)
    axes.margins(0.06)
    axes.set(xticks=[], yticks=[], ylabel=f"numbers: {group}")


def draw_radar(figure: Figure, definition: FigureDefinition, numbers: Numbers) -> None:
    """Draw one spoke per column; the rim is its best method, and inwards are points below it."""
    names = distinct(numbers.rows, "panel")
    axes = panels(figure, [""], rows=len(names), subplot_kw={"projection": "polar"})
    figure.set_size_inches(8.0, 6.2 * len(names) + 1.1)
    series = distinct(numbers.rows, "series")
    for panel, name in zip(axes, names, strict=True):
        rows = [row for row in numbers.rows if row["panel"] == name]
        spokes = distinct(rows, "spoke")
        angles = [2 * math.pi * i / len(spokes) for i in range(len(spokes))]
        for index, one in enumerate(series):
            gaps = {row["spoke"]: row["gap"] for row in rows if row["series"] == one}
            values = [gaps.get(spoke, math.nan) for spoke in spokes]
            if gaps:
                closed = [*values, values[0]]
                panel.plot([*angles, angles[0]], closed, label=one, clip_on=False, **line_style(index))
        panel.set_title(name)
        panel.set_xticks(angles, spokes, fontsize=8)
        panel.set_ylim(1.1 * min(row["gap"] for row in rows) or -1.0, 0.0)  # all equal: any scale does
        panel.tick_params(axis="x", pad=9)
        panel.tick_params(axis="y", labelsize=7)
    legend(figure, axes, series)
