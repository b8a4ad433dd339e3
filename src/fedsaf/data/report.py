"""A partition for human eyes: a table per client and part, and a picture of clients x classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich.table import Table

from fedsaf.data.record import PartitionRecord

_TOP = 4


def partition_table(record: PartitionRecord) -> Table:
    """Return one row per client: sizes and classes of both parts, its most frequent classes as train|test."""
    table = Table(
        title=f"{_title(record)}, {record.num_clients} clients, {record.hash[:12]}",
        caption="\n".join(record.notes) or None,
    )
    for name in ("client", "train", "test", "classes", "unseen"):
        table.add_column(name, justify="right", no_wrap=True)
    top_classes = f"top {min(_TOP, len(record.class_names))} classes, train|test"
    table.add_column(top_classes, no_wrap=True, overflow="ellipsis")
    for client in range(record.num_clients):
        train, test = record.train_counts[client], record.test_counts[client]
        classes = f"{(train > 0).sum()}|{(test > 0).sum()}"
        numbers = (client, train.sum(), test.sum(), classes, record.unseen[client])
        top = [c for c in np.argsort(-(train + test), kind="stable")[:_TOP] if train[c] + test[c]]
        table.add_row(*map(str, numbers), ", ".join(f"{record.class_names[c]} {train[c]}|{test[c]}" for c in top))
    table.add_section()
    totals = (record.train_counts.sum(), record.test_counts.sum())
    table.add_row("all", *map(str, totals), "", str(record.unseen.sum()), "")
    return table


def partition_picture(record: PartitionRecord, path: Path) -> None:
    """Save a heat map of sample counts, clients x classes, one panel per part; empty cells are white."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # slow to import, needed once per run
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    num_clients, num_classes = record.train_counts.shape
    width = 2 * min(max(0.25 * num_clients, 3.0), 9.0) + 1.5
    figure = Figure(figsize=(width, min(max(0.25 * num_classes, 3.0), 9.0) + 1.0), layout="constrained", dpi=120)
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 2, sharey=True)
    norm = LogNorm(1, max(int(record.train_counts.max()), int(record.test_counts.max()), 2))
    for panel, name, counts in zip(panels, ("train", "test"), (record.train_counts, record.test_counts), strict=True):
        cells = np.ma.masked_equal(counts.T, 0)
        image = panel.imshow(cells, norm=norm, cmap="viridis", aspect="auto", interpolation="nearest", origin="lower")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.yaxis.set_major_locator(MaxNLocator(integer=True))
        panel.set(title=f"{name}: {counts.sum()} samples", xlabel="client")
    panels[0].set_ylabel("class")
    if num_classes <= 20:
        panels[0].set_yticks(range(num_classes), record.class_names)
    figure.colorbar(image, ax=list(panels), label="samples")
    figure.suptitle(_title(record), fontsize="small", wrap=True)
    figure.savefig(path)


def _title(record: PartitionRecord) -> str:
    parameters = ", ".join(f"{name}={value}" for name, value in record.facts["parameters"].items())
    return f"{record.facts['dataset']}, {record.facts['rule']}({parameters})"
