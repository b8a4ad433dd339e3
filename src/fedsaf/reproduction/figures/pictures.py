"""Pictures of rows, panel by panel. What is drawn is what the rows say; a row that is not there leaves a gap."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedsaf.reproduction.figures.style import COLOURS, HATCHES, legend, line_style, signed, style

MAX_BANDS, MAX_MARKS = 5, 10
"""Series whose ranges are drawn, of more they would hide each other and stand in the CSV alone; markers on a curve."""
DARK = 0.6
"""Share of the largest gain from which a field is so dark that its text is white."""

PANEL_INCHES = (4.2, 3.0)
MARGIN_INCHES = (1.8, 1.1)
"""For a legend, for title and caption."""
MIN_WIDTH = 7.2
"""Inches, so that a title fits."""

Panel = Callable[[Axes, pd.DataFrame, Sequence[str]], None]


def draw_panels(
    figure: Figure, rows: pd.DataFrame, series: Sequence[str], panel: Panel, **layout: Any
) -> Sequence[Axes]:
    """Draw a panel for each value of the column ``panel``, its title, and one legend for all.

    Args:
        figure: an empty figure.
        rows: of all panels.
        series: names in the order that fixes their styles.
        panel: how one is drawn.
        layout: options of `panels`.
    """
    groups = list(rows.groupby("panel", sort=False))
    with style():
        axes = panels(figure, [str(name) for name, _ in groups] or [""], **layout)
        for one, (_, own) in zip(axes, groups, strict=False):
            panel(one, own, series)
        legend(figure, axes, series)
    return axes


def panels(
    figure: Figure, names: Sequence[str], columns: int = 2, size: tuple[float, float] = PANEL_INCHES, **options: Any
) -> list[Axes]:
    """Return one titled panel per name, line by line, and size the figure for them.

    Args:
        figure: an empty figure.
        names: titles.
        columns: panels in a line; with more than two, a figure shrunk to the width of a page could not be read.
        size: of a panel, in inches.
        options: of ``figure.subplots``.
    """
    figure.set_layout_engine("constrained")
    columns = min(columns, len(names))
    lines = math.ceil(len(names) / columns)
    figure.set_size_inches(max(size[0] * columns + MARGIN_INCHES[0], MIN_WIDTH), size[1] * lines + MARGIN_INCHES[1])
    grid = list(figure.subplots(lines, columns, squeeze=False, **options).flat)
    for axes, name in zip(grid, names, strict=False):
        axes.set_title(name)
    for axes in grid[len(names) :]:
        axes.remove()
    return grid[: len(names)]


def curve_panel(axes: Axes, rows: pd.DataFrame, series: Sequence[str], label: str = "accuracy in %") -> None:
    """Draw lines over rounds, the best round of each marked by a star."""
    with_band = rows["series"].nunique() <= MAX_BANDS
    for index, name in enumerate(series):
        own, look = rows[rows["series"] == name], line_style(index)
        if own.empty:
            continue
        axes.plot(own["round"], own["mean"], label=name, markevery=max(1, len(own) // MAX_MARKS), **look)
        if with_band and own["n"].max() > 1:
            axes.fill_between(own["round"], own["low"], own["high"], color=look["color"], alpha=0.18, linewidth=0)
        if "best" in own:
            star = own[own["best"]]
            look |= {"marker": "*", "linestyle": "none", "markersize": 12, "markeredgecolor": "black"}
            axes.plot(star["round"], star["mean"], **look)
    axes.set(xlabel="communication round", ylabel=label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def line_panel(axes: Axes, rows: pd.DataFrame, series: Sequence[str], swept: str, values: Sequence[float]) -> None:
    """Draw lines over one swept value, at even distances, with whiskers from the smallest to the largest seed."""
    for index, name in enumerate(series):
        own = rows[rows["series"] == name].set_index(swept).reindex(values)
        if own["mean"].notna().any():
            shift = 0.3 * (index / max(1, len(series) - 1) - 0.5)  # whiskers beside each other
            whiskers(axes, np.arange(len(values)) + shift, own, label=name, **line_style(index))
    axes.set_xticks(range(len(values)), [f"{value:g}" for value in values])
    axes.set(xlabel=swept, ylabel="accuracy in %")


def bar_panel(axes: Axes, rows: pd.DataFrame, series: Sequence[str]) -> None:
    """Draw a group of bars per client, one bar per series, with whiskers from the smallest to the largest seed."""
    clients = rows.drop_duplicates("client").sort_values("client").set_index("client")["architecture"]
    width = 0.8 / len(series)
    for index, name in enumerate(series):
        own = rows[rows["series"] == name]
        places = clients.index.get_indexer(own["client"]) + (index - (len(series) - 1) / 2) * width
        look = {"facecolor": COLOURS[index % len(COLOURS)], "hatch": HATCHES[index % len(HATCHES)]}
        if len(own):
            axes.bar(places, own["mean"], width, label=name, edgecolor="white", linewidth=0.4, **look)
            whiskers(axes, places, own, fmt="none", ecolor="black")
    axes.set_xticks(range(len(clients)), [f"{client}\n{name}" for client, name in clients.items()], fontsize=7)
    axes.set(xlabel="client and its network", ylabel="accuracy in %")
    axes.grid(False, axis="x")


def pair_panel(axes: Axes, rows: pd.DataFrame, series: Sequence[str], points: Sequence[str]) -> None:
    """Draw two marks per constructor and point, joined: its own alignment hollow, the other one filled."""
    half, ticks = len(series) // 2, {}  # those with their own alignment come first
    for number in range(len(points) * half):
        i, j = divmod(number, half)
        place, names, look = i * (half + 1) + j, (series[j], series[j + half]), line_style(j)
        ticks[place] = f"{names[0]}, {points[i]}"
        pair = rows[rows["point"] == points[i]].set_index("series").reindex(names)
        own, other = pair["mean"]
        if not math.isnan(own + other):
            axes.plot([place, place], [own, other], color="grey", linewidth=0.8, zorder=1)
            above = {"xytext": (0, 4), "textcoords": "offset points", "ha": "center", "fontsize": 6.5}
            axes.annotate(signed(other - own, 2), (place, pair["high"].max()), **above)
        for name, fill, shift in zip(names, ("white", look["color"]), (-0.12, 0.12), strict=True):
            if not math.isnan(pair.loc[name, "mean"]):
                options = look | {"linestyle": "none", "markerfacecolor": fill, "label": name}
                whiskers(axes, [place + shift], pair.loc[[name]], **options)
    axes.set_xticks(list(ticks), list(ticks.values()), rotation=60, ha="right", fontsize=7)
    axes.set_ylabel("accuracy in %")
    axes.margins(y=0.12)
    axes.set_xlim(-0.7, max(ticks) + 0.7)


def heat_panel(
    axes: Axes, rows: pd.DataFrame, series: Sequence[str], swept: Mapping[str, Sequence[float]], limit: float
) -> None:
    """Draw one field per pair of swept values with its gain written into it; a field that was not run is blank."""
    (down, downs), (up, ups) = swept.items()
    gains = rows.pivot(index=down, columns=up, values="mean").reindex(index=downs, columns=ups).to_numpy()
    for (i, j), gain in np.ndenumerate(gains):
        if not math.isnan(gain):
            text = signed(gain, 2) if downs[i] or ups[j] else "0\n(reference)"
            colour = "white" if abs(gain) > DARK * limit else "black"
            axes.text(j, i, text, ha="center", va="center", fontsize=7, color=colour)
    look = {"cmap": "PuOr", "vmin": -limit, "vmax": limit, "edgecolor": "white", "shading": "nearest"}
    axes.pcolormesh(range(len(ups)), range(len(downs)), np.ma.masked_invalid(gains), **look)
    axes.set_xticks(range(len(ups)), [f"{value:g}" for value in ups])
    axes.set_yticks(range(len(downs)), [f"{value:g}" for value in downs])
    axes.set(xlabel=up, ylabel=down)
    axes.grid(False)


def embedding_panel(axes: Axes, rows: pd.DataFrame, series: Sequence[str] = ()) -> None:
    """Draw every prototype as the ``number`` of its class or client; colours repeat, numbers do not."""
    for x, y, number in rows[["x", "y", "number"]].itertuples(index=False):
        colour = COLOURS[int(number) % len(COLOURS)]
        axes.plot(x, y, ".", markersize=1, color=colour)
        axes.text(x, y, str(number), color=colour, fontsize=7, ha="center", va="center", clip_on=True)
    axes.margins(0.06)
    axes.set(xticks=[], yticks=[])


def numbered(rows: pd.DataFrame, silhouettes: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of prototypes twice, by class and by client, under titles with the mean silhouette of all seeds.

    Args:
        rows: prototypes of one seed of each panel.
        silhouettes: a row per panel and seed.
    """
    parts = []
    for group in ("class", "client"):
        titles = {}
        for panel, own in silhouettes.groupby("panel", sort=False):
            value, seeds = pd.to_numeric(own[f"by_{group}"]).mean(), f" (n = {len(own)})" if panel else ""
            text = "undefined" if math.isnan(value) else f"{signed(value, 3)}{seeds}"
            titles[panel] = f"{panel}\nsilhouette by {group} {text}".strip()
        parts.append(rows.assign(panel=rows["panel"].map(titles), number=rows[group]))
    return pd.concat(parts)


def radar_panel(axes: Axes, rows: pd.DataFrame, series: Sequence[str]) -> None:
    """Draw one spoke per column; the rim is its best method, and inwards are points below it."""
    gaps = rows.pivot(index="spoke", columns="series", values="gap").reindex(rows["spoke"].unique())
    angles = 2 * math.pi * np.arange(len(gaps) + 1) / len(gaps)
    for index, name in enumerate(series):
        if name in gaps:
            axes.plot(angles, [*gaps[name], gaps[name].iloc[0]], label=name, clip_on=False, **line_style(index))
    axes.set_xticks(angles[:-1], list(gaps.index), fontsize=8)
    axes.set_ylim(1.1 * rows["gap"].min() or -1.0, 0.0)  # all equal: any scale does
    axes.tick_params(axis="x", pad=9)
    axes.tick_params(axis="y", labelsize=7)


def whiskers(axes: Axes, places: Sequence[float], rows: pd.DataFrame, **options: Any) -> None:
    """Draw means with whiskers from the smallest to the largest seed; what is NaN is not drawn."""
    errors = [rows["mean"] - rows["low"], rows["high"] - rows["mean"]]
    axes.errorbar(places, rows["mean"], yerr=errors, elinewidth=0.7, capsize=1.5, **options)
