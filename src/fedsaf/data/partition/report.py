"""A partition for human eyes: a table per client and part, and a picture of clients x classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from fedsaf.core.files import replacing
from fedsaf.data.partition.record import PartitionRecord

_TOP = 4
_NAMED, _LONGEST = 36, 24
"""The most clients, or classes, that the picture names one by one, and the most characters of a name."""


def partition_table(record: PartitionRecord) -> Table:
    """Return one row per client: sizes and classes of both parts, its most frequent classes as train|test.

    Clients that hold one domain or user each have its name beside their id.
    """
    table = Table(
        title=f"{escape(_title(record))}, {record.num_clients} clients, {record.hash[:12]}",
        caption="\n".join(record.notes) or None,
    )
    for name in ("client", "train", "test", "classes", "unseen"):
        table.add_column(name, justify="right", no_wrap=True)
    named = bool(record.client_groups)
    if named:
        table.add_column("holds", no_wrap=True)
    top_classes = f"top {min(_TOP, len(record.class_names))} classes, train|test"
    table.add_column(top_classes)  # the only column that gives way on a narrow console
    for client in range(record.num_clients):
        train, test = record.train_counts[client], record.test_counts[client]
        classes = f"{(train > 0).sum()}|{(test > 0).sum()}"
        numbers = (client, train.sum(), test.sum(), classes, record.unseen[client])
        own = [escape(_short(record.client_names[client]))] if named else []
        top = [c for c in np.argsort(-(train + test), kind="stable")[:_TOP] if train[c] + test[c]]
        shares = ", ".join(f"{_short(record.class_names[c])} {train[c]}|{test[c]}" for c in top)
        table.add_row(*map(str, numbers), *own, Text(shares, no_wrap=True, overflow="ellipsis"))
    table.add_section()
    totals = (record.train_counts.sum(), record.test_counts.sum())
    table.add_row("all", *map(str, totals), "", str(record.unseen.sum()), *[""] * (1 + named))
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
        if record.client_groups and num_clients <= _NAMED:
            panel.set_xticks(range(num_clients), [_plain(own) for own in record.client_names], rotation=90)
    panels[0].set_ylabel("class")
    if num_classes <= _NAMED:
        panels[0].set_yticks(range(num_classes), [_plain(name) for name in record.class_names])
    figure.colorbar(image, ax=list(panels), label="samples")
    figure.suptitle(_title(record), fontsize="small", wrap=True)
    with replacing(path) as aside:
        figure.savefig(aside, format="png")


def _short(name: str) -> str:
    """Return a name on one line that leaves room for others: a class may be called after a line feed, or a sentence."""
    name = "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)
    name = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
    return name if name.strip() else f"'{name}'"


def _plain(name: str) -> str:
    """Return a short name whose dollar signs are no formula to the picture."""
    return _short(name).replace("$", r"\$")


def _title(record: PartitionRecord) -> str:
    parameters = ", ".join(f"{name}={value}" for name, value in record.facts["parameters"].items())
    return f"{record.facts['dataset']}, {record.facts['rule']}({parameters})"
