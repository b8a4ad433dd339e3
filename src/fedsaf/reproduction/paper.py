"""What the papers print: every number of the tables that this project rebuilds.

``paper_values.csv`` holds one row per printed number. Numbers are as printed, except that FedProc's times per round are
in seconds; ``std`` is empty where none is printed. Units differ from the printed ones where those are wrong: FedSAF's
Table IX counts MiB, and FedTGP's communication table counts millions of numbers. FedSAF does not state the partition
of Table IX (its byte counts belong to Dir(0.1)), nor the concentration of the label shift in Table V.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

AXES = ("dataset", "partition", "model_group", "method", "setting")
"""What tells the cells of a table apart; ``setting`` is whatever else does, empty where nothing does."""


@dataclass(frozen=True)
class PaperValue:
    """One printed number.

    Attributes:
        paper: FedSAF, FedTGP or FedProc.
        table: its number there; FedTGP's are those of its knowledge cards, as in the names of our targets.
        labels: label by axis.
        mean: as printed.
        std: as printed; empty if none is.
        unit: %, s, MiB or 10^6 numbers.
    """

    paper: str
    table: str
    labels: Mapping[str, str]
    mean: str
    std: str
    unit: str

    @property
    def text(self) -> str:
        """Mean and, if printed, deviation."""
        return f"{self.mean} ± {self.std}" if self.std else self.mean


@cache
def paper_values() -> tuple[PaperValue, ...]:
    """Return every printed number, in the order of the file."""
    text = files("fedsaf.reproduction").joinpath("paper_values.csv").read_text(encoding="utf-8")
    return tuple(
        PaperValue(row["paper"], row["table"], {axis: row[axis] for axis in AXES}, row["mean"], row["std"], row["unit"])
        for row in csv.DictReader(text.splitlines())
    )


def printed(paper: str, table: str, labels: Mapping[str, str]) -> PaperValue | None:
    """Return what a table prints in the cell with these labels; None if it prints nothing.

    Raises:
        ValueError: it prints two different numbers there.
    """
    found = [
        value
        for value in paper_values()
        if (value.paper, value.table) == (paper, table) and dict(value.labels) == dict(labels)
    ]
    if len({(value.mean, value.std) for value in found}) > 1:
        raise ValueError(f"{paper} {table}: {dict(labels)} has {' and '.join(value.text for value in found)}")
    return found[0] if found else None
