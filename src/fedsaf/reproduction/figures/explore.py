"""Figures of any recorded runs, which follow no paper: seeds of one cell are one line."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedsaf.reproduction.figures import values
from fedsaf.reproduction.figures.pictures import (
    bar_panel,
    curve_panel,
    draw_panels,
    embedding_panel,
    numbered,
    panels,
    whiskers,
)
from fedsaf.reproduction.figures.prototypes import (
    BROADCAST,
    UPLOADS,
    embed,
    local_prototypes,
    read_prototypes,
    silhouettes,
)
from fedsaf.reproduction.figures.style import line_style, style
from fedsaf.reproduction.frame import GROUPS, VALUES
from fedsaf.reproduction.soundness import UnusableRun
from fedsaf.tracking.closing import ALWAYS_SHOWN, MIB

DIAGNOSED = {
    "effective_dimension": "effective dimensions",
    "coordinate": "squared distance to the server's",
    "shape": "its shape part",
    "rigid": "its rigid part",
    "local_margin_mean": "margins of the clients",
    "global_margin_mean": "margins of the server's",
}
"""What runs record about prototypes, by its key in a record: see ``evaluation/diagnostics.py``."""


def named(runs: pd.DataFrame, rule: str = "reported") -> pd.DataFrame:
    """Return the rows by one prediction rule, with ``series``, the name of their cell: equal but for the seed.

    A cell is named by its method, alignment and partition and by whatever else differs among the runs; if that does not
    tell two cells apart, by its hash too. The same run met twice counts once.

    Args:
        runs: a frame of runs.
        rule: prediction rule, or ``reported`` for each method's own.
    """
    keys = [key for key in dict.fromkeys((*ALWAYS_SHOWN, *GROUPS, *VALUES)) if key != "seed"]
    keys = [key for key in keys if key in ALWAYS_SHOWN or runs[key].nunique(dropna=False) > 1]
    cells = runs.drop_duplicates("cell").set_index("cell")[keys].astype(object)
    names = {cell: ", ".join(str(value) for value in row if pd.notna(value)) for cell, *row in cells.itertuples()}
    shared = {name for name in names.values() if list(names.values()).count(name) > 1}
    names = {cell: f"{name} ({cell[:6]})" if name in shared else name for cell, name in names.items()}
    rows = runs[runs["reported"] if rule == "reported" else runs["predictor"] == rule]
    rows = rows.drop_duplicates(["cell", "seed", "round"])
    return rows.assign(series=rows["cell"].map(names).astype(object))


def draw_accuracy(figure: Figure, runs: pd.DataFrame, rule: str) -> pd.DataFrame:
    """Draw accuracy over rounds, one line per cell, the best round of the mean marked; return what was drawn.

    Args:
        figure: an empty figure.
        runs: a frame of runs.
        rule: prediction rule, or ``reported`` for each method's own.
    """
    rows = values.shared_rounds(values.accuracies(named(runs, rule)), ["series"], with_best=True)
    rows = rows.assign(panel=f"{rule.replace('_', ' ')}: mean and range over seeds")
    draw_panels(figure, rows, list(rows["series"].unique()), curve_panel)
    return rows


def draw_clients(figure: Figure, runs: pd.DataFrame, rule: str) -> pd.DataFrame:
    """Draw the accuracy of each of the first nine clients in the best round, one bar per cell; return the rows."""
    rows = values.spread(values.of_clients(named(runs, rule)), ["series", "client", "architecture"])
    rows = rows.assign(panel=f"{rule.replace('_', ' ')}: each client, best round")
    draw_panels(figure, rows, list(rows["series"].unique()), bar_panel)
    return rows


def draw_traffic(figure: Figure, runs: pd.DataFrame, rule: str) -> pd.DataFrame:
    """Draw the best accuracy over what all clients sent and received up to then, in MiB; return what was drawn."""

    def panel(axes: Axes, rows: pd.DataFrame, series: Sequence[str]) -> None:
        for index, (name, own) in enumerate(rows.groupby("series", sort=False)):
            whiskers(axes, own["mib"], own, label=name, **line_style(index) | {"linestyle": "none"})
        axes.set(xlabel="MiB sent and received up to the best round", ylabel="best accuracy in %")

    rows = named(runs, rule)
    sums = (rows["upload_bytes"] + rows["download_bytes"]).groupby(rows["folder"], observed=True).cumsum()
    found = values.best(rows.assign(mib=sums / MIB))
    rows = values.spread(found, ["series"]).join(found.groupby("series")["mib"].mean(), on="series")
    rows = rows.assign(panel="communication and accuracy")
    draw_panels(figure, rows, list(rows["series"]), panel)
    return rows


def draw_diagnostics(figure: Figure, runs: pd.DataFrame) -> pd.DataFrame:
    """Draw what was measured about prototypes over rounds, one panel per number, one line per cell; return the rows."""
    lines = named(runs)
    parts = {text: values.shared_rounds(values.diagnosed(lines, key), ["series"]) for key, text in DIAGNOSED.items()}
    rows = pd.concat([part.assign(panel=text) for text, part in parts.items()], ignore_index=True)
    draw_panels(figure, rows, list(lines["series"].unique()), partial(curve_panel, label=""), sharey=False)
    return rows


def with_prototypes(runs: pd.DataFrame) -> list[Path]:
    """Return the folders of the runs that kept local and global prototypes, at least one.

    Raises:
        UnusableRun: none did.
    """
    folders = [Path(folder) for folder in runs["folder"].unique()]
    found = [folder for folder in folders if (folder / UPLOADS).exists() and (folder / BROADCAST).exists()]
    if not found:
        raise UnusableRun(
            f"none of {len(folders)} runs holds {UPLOADS} and {BROADCAST}: their methods exchange neither"
        )
    return found


def draw_embedding(figure: Figure, folder: Path) -> pd.DataFrame:
    """Draw t-SNE of all local prototypes of the last round of a run, by class and by client; return the rows.

    Raises:
        UnusableRun: the run has no local prototypes; the message says why.
    """
    local = local_prototypes(folder)
    rows = embed(local)
    twice = numbered(rows.assign(panel=""), pd.DataFrame([{"panel": "", **silhouettes(local)}]))
    draw_panels(figure, twice, [], embedding_panel)
    return rows


def draw_geometry(figure: Figure, folder: Path) -> np.ndarray:
    """Draw the cosines between the server's last prototypes, class by class; return them, (C, C).

    Raises:
        UnusableRun: the run broadcast no prototypes at its end.
    """
    labels, means = read_prototypes(folder / BROADCAST, "labels", "values")
    means = means.astype(np.float64)
    unit = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    cosines = unit @ unit.T
    with style():
        (axes,) = panels(figure, ["cosines between the server's prototypes"])
        picture = axes.imshow(cosines, cmap="PuOr", vmin=-1, vmax=1)
        ticks = np.linspace(0, len(labels) - 1, min(10, len(labels))).round().astype(int)
        axes.set(xticks=ticks, yticks=ticks, xticklabels=labels[ticks], yticklabels=labels[ticks])
        axes.set(xlabel="class", ylabel="class")
        axes.grid(False)
        figure.colorbar(picture, ax=axes)
    return cosines
