"""Figures of what prototypes are like: dimensions, shape and rigid parts, margins, and their mutual geometry."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from safetensors import SafetensorError
from safetensors.numpy import load_file

from fedsaf.reproduction.collect import RecordedRun
from fedsaf.reproduction.figures.cells import cell_curves
from fedsaf.reproduction.figures.curve_numbers import diagnosed
from fedsaf.reproduction.figures.drawing import curve_panel
from fedsaf.reproduction.figures.embedding import UPLOADS, embedding_rows, local_prototypes, silhouette
from fedsaf.reproduction.figures.maps import embedding_panel
from fedsaf.reproduction.figures.numbers import Row, distinct
from fedsaf.reproduction.figures.style import legend, panels, signed, style
from fedsaf.reproduction.records import UnusableRun

DIAGNOSED = {
    "effective_dimension": "effective dimensions",
    "coordinate": "squared distance to the server's",
    "shape": "its shape part",
    "rigid": "its rigid part",
    "local_margin_mean": "margins of the clients",
    "global_margin_mean": "margins of the server's",
}
"""What runs record about prototypes, by its key in a record: see ``evaluation/diagnostics.py``."""
BROADCAST = "prototypes.safetensors"


def draw_diagnostics(figure: Figure, runs: Sequence[RecordedRun]) -> list[Row]:
    """Draw what was measured about prototypes over rounds, one panel per number, one line per cell; return the rows.

    A panel whose number no run has stays empty.
    """
    rows = [
        {"panel": text, **row}
        for key, text in DIAGNOSED.items()
        for row in cell_curves(runs, lambda run, key=key: diagnosed(run, key), has_best=False)
    ]
    texts, order = list(DIAGNOSED.values()), distinct(rows, "series")
    with style():
        axes = panels(figure, texts[:3], rows=2)
        for panel, text in zip(axes, texts, strict=True):
            curve_panel(panel, [row for row in rows if row["panel"] == text], order)
            panel.set_title(text)
        for panel in axes[3:]:
            panel.set_xlabel("communication round")
        legend(figure, axes, order)
    return rows


def with_prototypes(runs: Sequence[RecordedRun]) -> list[RecordedRun]:
    """Return the runs that kept local and global prototypes, at least one.

    Raises:
        UnusableRun: none did.
    """
    found = [run for run in runs if all((run.folder / name).exists() for name in (UPLOADS, BROADCAST))]
    if not found:
        raise UnusableRun(f"none of {len(runs)} runs holds {UPLOADS} and {BROADCAST}: their methods exchange neither")
    return found


def draw_embedding(figure: Figure, run: RecordedRun) -> list[Row]:
    """Draw t-SNE of all local prototypes of the last round, by class and by client; return the rows.

    Raises:
        UnusableRun: the run has no local prototypes; the message says why.
    """
    local = local_prototypes(run)
    rows = embedding_rows(local)
    values = {"class": silhouette(local.means, local.label), "client": silhouette(local.means, local.client)}
    with style():
        axes = panels(figure, list(values))
        for panel, (group, value) in zip(axes, values.items(), strict=True):
            embedding_panel(panel, rows, group)
            panel.set_title(f"silhouette by {group} {'undefined' if value is None else signed(value, 3)}")
    return rows


def draw_geometry(figure: Figure, run: RecordedRun) -> np.ndarray:
    """Draw the cosines between the server's last prototypes, class by class; return them, (K, K).

    Raises:
        UnusableRun: the run broadcast no prototypes at its end.
    """
    labels, values = server_prototypes(run)
    unit = values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    cosines = unit @ unit.T
    with style():
        (axes,) = panels(figure, ["cosines between the server's prototypes"])
        picture = axes.imshow(cosines, cmap="PuOr", vmin=-1, vmax=1)
        ticks = np.linspace(0, len(labels) - 1, min(10, len(labels))).round().astype(int)
        axes.set_xticks(ticks, labels[ticks])
        axes.set_yticks(ticks, labels[ticks])
        axes.set(xlabel="class", ylabel="class")
        axes.grid(False)
        figure.colorbar(picture, ax=axes)
    return cosines


def server_prototypes(run: RecordedRun) -> tuple[np.ndarray, np.ndarray]:
    """Return labels (K,) and values (K, d) of the last broadcast prototypes.

    Raises:
        UnusableRun: the run has none, or they cannot be read.
    """
    path = run.folder / BROADCAST
    if not path.exists():
        raise UnusableRun(f"{run.folder.name} has no {BROADCAST}: its method exchanges no prototypes")
    try:
        tensors = load_file(path)
        return tensors["labels"], tensors["values"].astype(np.float64)
    except (SafetensorError, KeyError, OSError) as error:
        raise UnusableRun(f"{run.folder.name}: {BROADCAST} cannot be read: {error}") from error
