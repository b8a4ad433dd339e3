"""Pictures of rows. What is drawn is what the rows say; a row that is not there leaves a gap."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedsaf.reproduction.figures.style import COLOURS, HATCHES, legend, line_style, panels, signed

MAX_BANDS, MAX_MARKS = 5, 10
"""Series whose ranges are drawn, of more they would hide each other and stand in the CSV alone; markers on a curve."""
DARK = 0.6
"""Share of the largest gain from which a field is so dark that its text is white."""
WHISKERS = {"elinewidth": 0.7, "capsize": 1.5}


def draw_curves(figure: Figure, rows: pd.DataFrame, series: Sequence[str], axis: str) -> None:
    """Draw lines over rounds, the best round of each marked by a star."""
    axes = panels(figure, rows["panel"].unique(), sharey=False)
    for panel, (_, own) in zip(axes, rows.groupby("panel", sort=False), strict=True):
        curve_panel(panel, own, series)
        panel.set_xlabel("communication round")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0].set_ylabel(axis)
    legend(figure, axes, series)


def curve_panel(axes: Axes, rows: pd.DataFrame, series: Sequence[str]) -> None:
    """Draw the curves of one panel; ``series`` fixes the style of each."""
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


def draw_lines(figure: Figure, rows: pd.DataFrame, series: Sequence[str], swept: str, values: Sequence[float]) -> None:
    """Draw lines over one swept value, at even distances, with whiskers from the smallest to the largest seed."""
    axes = panels(figure, rows["panel"].unique())
    for panel, (_, of_panel) in zip(axes, rows.groupby("panel", sort=False), strict=True):
        for index, name in enumerate(series):
            own = of_panel[of_panel["series"] == name].set_index(swept).reindex(values)
            if own["mean"].notna().any():
                shift = 0.3 * (index / max(1, len(series) - 1) - 0.5)  # whiskers beside each other
                whiskers(panel, np.arange(len(values)) + shift, own, label=name, **line_style(index))
        panel.set_xticks(range(len(values)), [f"{value:g}" for value in values])
        panel.set_xlabel(swept)
    axes[0].set_ylabel("accuracy in %")
    legend(figure, axes, series)


def draw_client_bars(figure: Figure, rows: pd.DataFrame, series: Sequence[str]) -> None:
    """Draw a group of bars per client, one bar per series, with whiskers from the smallest to the largest seed."""
    names = rows["panel"].unique()
    axes = panels(figure, [""], rows=len(names), height=0.9 if len(names) > 1 else 1.0)
    figure.set_size_inches(9.5, figure.get_size_inches()[1])
    for panel, (name, own) in zip(axes, rows.groupby("panel", sort=False), strict=True):
        panel.set_title(name)
        bar_panel(panel, own, series)
    legend(figure, axes, series)


def bar_panel(axes: Axes, rows: pd.DataFrame, series: Sequence[str]) -> None:
    """Draw the bars of one panel; ``series`` fixes the style of each."""
    clients = rows.drop_duplicates("client").sort_values("client").set_index("client")["architecture"]
    width = 0.8 / max(1, len(series))
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


def draw_pairs(figure: Figure, rows: pd.DataFrame, series: Sequence[str], points: Sequence[str]) -> None:
    """Draw two marks per constructor and point, joined: its own alignment hollow, the other one filled."""
    half = len(series) // 2  # those with their own alignment come first
    pairs = list(zip(series[:half], series[half:], strict=True))
    ticks = [
        (i * (len(pairs) + 1) + j, point, j, pair) for i, point in enumerate(points) for j, pair in enumerate(pairs)
    ]
    axes = panels(figure, rows["panel"].unique(), sharey=False)
    for panel, (_, own) in zip(axes, rows.groupby("panel", sort=False), strict=True):
        for place, point, j, pair in ticks:
            _pair(panel, place, line_style(j), own[own["point"] == point].set_index("series").reindex(pair))
        labels = [f"{pair[0]}, {point}" for _, point, _, pair in ticks]
        panel.set_xticks([place for place, *_ in ticks], labels, rotation=60, ha="right", fontsize=7)
        panel.margins(y=0.12)
        panel.set_xlim(-0.7, ticks[-1][0] + 0.7)
    axes[0].set_ylabel("accuracy in %")
    legend(figure, axes, series)


def _pair(axes: Axes, place: float, look: dict, pair: pd.DataFrame) -> None:
    if pair["mean"].notna().all():
        axes.plot([place, place], pair["mean"], color="grey", linewidth=0.8, zorder=1)
        axes.annotate(
            signed(pair["mean"].iloc[1] - pair["mean"].iloc[0], 2),
            (place, pair["high"].max()),
            xytext=(0, 4),
            textcoords="offset points",
            ha="center",
            fontsize=6.5,
        )
    for name, fill, shift in zip(pair.index, ("white", look["color"]), (-0.12, 0.12), strict=True):
        if not math.isnan(pair.loc[name, "mean"]):
            options = look | {"linestyle": "none", "markerfacecolor": fill, "label": name}
            whiskers(axes, [place + shift], pair.loc[[name]], **options)


def draw_heat_maps(figure: Figure, rows: pd.DataFrame, sweep: dict[str, Sequence[float]]) -> None:
    """Draw one field per pair of swept values with its gain written into it; a field that was not run is blank."""
    (down, downs), (up, ups) = sweep.items()
    limit = rows["mean"].abs().max() or 1.0
    axes = panels(figure, rows["panel"].unique(), height=1.05)
    for panel, (_, own) in zip(axes, rows.groupby("panel", sort=False), strict=True):
        gains = own.pivot(index=down, columns=up, values="mean").reindex(index=downs, columns=ups)
        for (i, j), gain in np.ndenumerate(gains.to_numpy()):
            if not math.isnan(gain):
                text = signed(gain, 2) if downs[i] or ups[j] else "0\n(reference)"
                colour = "white" if abs(gain) > DARK * limit else "black"
                panel.text(j, i, text, ha="center", va="center", fontsize=7, color=colour)
        fields = {"vmin": -limit, "vmax": limit, "edgecolor": "white", "shading": "nearest"}
        panel.pcolormesh(range(len(ups)), range(len(downs)), np.ma.masked_invalid(gains), cmap="PuOr", **fields)
        panel.set_xticks(range(len(ups)), [f"{value:g}" for value in ups])
        panel.set_yticks(range(len(downs)), [f"{value:g}" for value in downs])
        panel.set(xlabel=up, ylabel=down)
        panel.grid(False)
    figure.colorbar(axes[0].collections[0], ax=axes, label="gain in points")


def draw_embeddings(figure: Figure, rows: pd.DataFrame, silhouettes: pd.DataFrame) -> None:
    """Draw every prototype twice, above as the number of its class, below as the number of its client."""
    names = rows["panel"].unique()
    axes = panels(figure, names, rows=2)
    for place, panel in enumerate(axes):
        line, column = divmod(place, len(names))
        group, own = ("class", "client")[line], silhouettes[silhouettes["panel"] == names[column]]
        embedding_panel(panel, rows[rows["panel"] == names[column]], group)
        text = silhouette_text(group, own[f"by_{group}"].mean(), f" (n = {len(own)})")
        panel.set_title(text if line else f"{names[column]}\n{text}")


def silhouette_text(group: str, value: float | None, seeds: str = "") -> str:
    """Return the title of a panel of prototypes."""
    return f"silhouette by {group} " + (
        "undefined" if value is None or math.isnan(value) else f"{signed(value, 3)}{seeds}"
    )


def embedding_panel(axes: Axes, rows: pd.DataFrame, group: str) -> None:
    """Draw every prototype as the number of its ``class`` or ``client``; colours repeat, numbers do not."""
    for x, y, number in rows[["x", "y", group]].itertuples(index=False):
        colour = COLOURS[int(number) % len(COLOURS)]
        axes.plot(x, y, ".", markersize=1, color=colour)
        axes.text(x, y, str(number), color=colour, fontsize=7, ha="center", va="center", clip_on=True)
    axes.margins(0.06)
    axes.set(xticks=[], yticks=[], ylabel=f"numbers: {group}")


def draw_radar(figure: Figure, rows: pd.DataFrame, series: Sequence[str]) -> None:
    """Draw one spoke per column; the rim is its best method, and inwards are points below it."""
    names = rows["panel"].unique()
    axes = panels(figure, [""], rows=len(names), subplot_kw={"projection": "polar"})
    figure.set_size_inches(8.0, 6.2 * len(names) + 1.1)
    for panel, (name, own) in zip(axes, rows.groupby("panel", sort=False), strict=True):
        gaps = own.pivot(index="spoke", columns="series", values="gap").reindex(own["spoke"].unique())
        angles = 2 * math.pi * np.arange(len(gaps)) / len(gaps)
        for index, one in enumerate(series):
            if one in gaps:
                closed = np.append(gaps[one], gaps[one].iloc[0])
                panel.plot(np.append(angles, angles[0]), closed, label=one, clip_on=False, **line_style(index))
        panel.set_title(name)
        panel.set_xticks(angles, gaps.index, fontsize=8)
        panel.set_ylim(1.1 * own["gap"].min() or -1.0, 0.0)  # all equal: any scale does
        panel.tick_params(axis="x", pad=9)
        panel.tick_params(axis="y", labelsize=7)
    legend(figure, axes, series)


def whiskers(axes: Axes, places: Sequence[float], rows: pd.DataFrame, **options) -> None:
    """Draw means with whiskers from the smallest to the largest seed; what is NaN is not drawn."""
    errors = [rows["mean"] - rows["low"], rows["high"] - rows["mean"]]
    axes.errorbar(places, rows["mean"], yerr=errors, **WHISKERS, **options)
