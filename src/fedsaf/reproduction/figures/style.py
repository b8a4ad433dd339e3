"""How figures look: readable in print and without colour, the same for every figure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#7F7F7F")
"""Okabe and Ito's, which people with colour blindness tell apart; without the yellow, which paper swallows."""
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


def style() -> Any:
    """Return the context within which the figures of a report are drawn and saved."""
    return mpl.rc_context(SETTINGS)


def line_style(index: int) -> dict[str, Any]:
    """Return colour, marker and line of the index-th series; no two of the first 14 share marker and line."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "marker": MARKERS[index % len(MARKERS)],
        "linestyle": LINES[(index + index // len(COLOURS)) % len(LINES)],
    }


def legend(figure: Figure, axes: Sequence[Axes], order: Sequence[str]) -> None:
    """Put one legend for all panels at the right, each name once, in this order."""
    entries: dict[str, Any] = {}
    for one in axes:
        entries = dict(zip(*reversed(one.get_legend_handles_labels()), strict=True)) | entries
    names = [name for name in order if name in entries]
    if len(names) > 1:
        figure.legend([entries[name] for name in names], names, loc="outside right center", frameon=False)


def caption(figure: Figure, title: str, text: str) -> None:
    """Put a title above and a caption below, which say what stands here where the figure is met without its page."""
    width = int(figure.get_size_inches()[0] * 17)
    figure.suptitle(textwrap.fill(title, int(width * 0.55)), fontsize=10)
    figure.supxlabel(textwrap.fill(text, width), fontsize=6.5, x=0.01, ha="left")


def signed(value: float, digits: int) -> str:
    """Return a number with its sign, a true minus.

    >>> signed(-0.5, 2)
    '−0.50'
    """
    return f"{value:+.{digits}f}".replace("-", "−")
