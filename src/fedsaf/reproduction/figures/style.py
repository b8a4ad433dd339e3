"""How figures look: readable in print and without colour, the same for every figure."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#7F7F7F")
"""Okabe and Ito's, which people with colour blindness tell apart; without the yellow, which paper swallows."""
MOST_SIDE_BY_SIDE = 2
"""Panels in a line: with more, a figure shrunk to the width of a page could not be read."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "h", "p", "1", "d", "8")
LINES = ("-", "--", "-.", ":")
HATCHES = ("", "///", "\\\\\\", "...", "xxx", "++", "oo", "--")
SETTINGS = {
    "font.size": 9,
    "axes.titlesize": 9,
    "legend.fontsize": 8,
    "legend.handlelength": 3.0,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.axisbelow": True,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "hatch.linewidth": 0.6,
    "pdf.fonttype": 42,
    "savefig.dpi": 150,
}
PANEL_INCHES = (4.2, 3.0)
MIN_WIDTH = 5.4
"""Inches beside the legend, so that a title fits."""
MAX_MARKS = 10
"""Markers on one curve."""


@contextmanager
def style() -> Iterator[None]:
    """Draw and save in the style of the report within this context."""
    with mpl.rc_context(SETTINGS):
        yield


def line_style(index: int) -> dict[str, Any]:
    """Return colour, marker and line of the index-th series; no two of the first 14 share marker and line."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "marker": MARKERS[index % len(MARKERS)],
        "linestyle": LINES[(index + index // len(COLOURS)) % len(LINES)],
    }


def bar_style(index: int) -> dict[str, Any]:
    """Return colour and hatch of the bars of the index-th series."""
    return {
        "facecolor": COLOURS[index % len(COLOURS)],
        "hatch": HATCHES[index % len(HATCHES)],
        "edgecolor": "white",
        "linewidth": 0.4,
    }


def every_mark(num_points: int) -> int:
    """Return the distance of markers on a curve of so many points."""
    return max(1, num_points // MAX_MARKS)


def panels(figure: Figure, names: Sequence[str], rows: int = 1, height: float = 1.0, **options: Any) -> list[Axes]:
    """Return one titled panel per name and row, and size the figure for them.

    They stand side by side; of a single row, no more than two in a line.

    Args:
        figure: an empty figure.
        names: titles.
        rows: of panels; the titles stand above the first.
        height: of a panel, relative to the usual one.
        options: of ``figure.subplots``.
    """
    figure.set_layout_engine("constrained")
    columns = min(MOST_SIDE_BY_SIDE, len(names)) if rows == 1 else len(names)
    lines = max(rows, math.ceil(len(names) / columns))
    width = max(PANEL_INCHES[0] * columns, MIN_WIDTH)
    figure.set_size_inches(width + 1.8, PANEL_INCHES[1] * height * lines + 1.1)
    grid = list(figure.subplots(lines, columns, squeeze=False, **options).flat)
    for axes, name in zip(grid, names, strict=False):
        axes.set_title(name)
    used = rows * len(names)
    for axes in grid[used:]:
        axes.set_visible(False)
    return grid[:used]


def legend(figure: Figure, axes: Sequence[Axes], order: Sequence[str]) -> None:
    """Put one legend for all panels at the right, each name once, in this order."""
    entries: dict[str, Any] = {}
    for one in axes:
        entries = dict(zip(*reversed(one.get_legend_handles_labels()), strict=True)) | entries
    if len(entries) > 1:
        names = [name for name in order if name in entries]
        figure.legend([entries[name] for name in names], names, loc="outside right center", frameon=False)


def caption(figure: Figure, title: str, text: str) -> None:
    """Put a title above and a caption below, which say what stands here where the figure is met without its page."""
    width = int(figure.get_size_inches()[0] * 17)
    figure.suptitle("\n".join(textwrap.wrap(title, int(width * 0.55))), fontsize=10)
    wrapped = "\n".join(textwrap.wrap(text, width))
    figure.supxlabel(wrapped, fontsize=6.5, x=0.01, ha="left")


def signed(value: float, digits: int) -> str:
    """Return a number with its sign, a true minus.

    >>> signed(-0.5, 2)
    '−0.50'
    """
    return f"{value:+.{digits}f}".replace("-", "−")
