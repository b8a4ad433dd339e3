"""Figures that compare any recorded runs, whichever experiment they are of: seeds of one cell are one line."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from fedsaf.reproduction.collect import RecordedRun
from fedsaf.reproduction.figures.cells import cell_curves, cells_of
from fedsaf.reproduction.figures.curve_numbers import CURVE_NUMBERS
from fedsaf.reproduction.figures.drawing import bar_panel, curve_panel
from fedsaf.reproduction.figures.numbers import Row, client_accuracies, distinct, spread
from fedsaf.reproduction.figures.style import legend, line_style, panels, style
from fedsaf.reproduction.measures import MIB


def draw_accuracy(figure: Figure, runs: Sequence[RecordedRun], rule: str) -> list[Row]:
    """Draw accuracy over rounds, one line per cell, the best round of the mean marked; return what was drawn.

    Args:
        figure: an empty figure.
        runs: of any experiments.
        rule: prediction rule, or ``reported`` for each method's own.
    """
    number = CURVE_NUMBERS["accuracy"]
    rows = cell_curves(runs, lambda run: number.values(run, rule, ""), number.has_best)
    with style():
        (axes,) = panels(figure, [f"{rule.replace('_', ' ')}: mean and range over seeds"])
        curve_panel(axes, rows, distinct(rows, "series"))
        axes.set(xlabel="communication round", ylabel=number.axis)
        legend(figure, [axes], distinct(rows, "series"))
    return rows


def draw_clients(figure: Figure, runs: Sequence[RecordedRun], rule: str) -> list[Row]:
    """Draw the accuracy of each of the first nine clients in the best round, one bar per cell; return the rows."""
    rows: list[Row] = []
    for cell in cells_of(runs):
        by_client: dict[tuple[int, str], list[float]] = {}
        for run in cell.runs:
            for client, (architecture, accuracy) in (client_accuracies(run, rule) or {}).items():
                if accuracy is not None:
                    by_client.setdefault((client, architecture), []).append(accuracy)
        for (client, architecture), values in by_client.items():
            rows.append({"series": cell.name, "client": client, "architecture": architecture, **spread(values)})
    with style():
        (axes,) = panels(figure, [f"{rule.replace('_', ' ')}: each client, best round"])
        if rows:
            bar_panel(axes, rows, distinct(rows, "series"))
        legend(figure, [axes], distinct(rows, "series"))
    return rows


def draw_traffic(figure: Figure, runs: Sequence[RecordedRun], rule: str) -> list[Row]:
    """Draw the best accuracy over what all clients sent and received up to then, in MiB; return what was drawn."""
    number, rows = CURVE_NUMBERS["accuracy"], []
    for cell in cells_of(runs):
        points = []
        for run in cell.runs:
            curve = {t: value for t, value in number.values(run, rule, "").items() if t >= 1}
            if curve:
                best = max(curve, key=curve.__getitem__)
                points.append((_mib_until(run, best), curve[best]))
        if points:
            sent, accuracy = (spread(values) for values in zip(*points, strict=True))
            rows.append({"series": cell.name, "mib": sent["mean"], **accuracy})
    with style():
        (axes,) = panels(figure, ["communication and accuracy"])
        for index, row in enumerate(rows):
            look = line_style(index) | {"linestyle": "none"}
            axes.errorbar(
                [row["mib"]],
                [row["mean"]],
                yerr=[[row["mean"] - row["low"]], [row["high"] - row["mean"]]],
                label=row["series"],
                capsize=2,
                **look,
            )
        axes.set(xlabel="MiB sent and received up to the best round", ylabel="best accuracy in %")
        legend(figure, [axes], distinct(rows, "series"))
    return rows


def _mib_until(run: RecordedRun, last: int) -> float:
    rows = [row for row in run.rows if row["round"] <= last]
    return sum(row[key]["total"] for row in rows for key in ("upload_bytes", "download_bytes")) / MIB
