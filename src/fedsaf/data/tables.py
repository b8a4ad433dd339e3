"""Tables as data sets: their official parts, what their columns hold, and which one is meant."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TablePart:
    """One file or split of a table.

    Attributes:
        name: official part that it belongs to.
        place: what error messages call it.
        folder: where files that its rows name are; None if they hold everything.
        features: type of each column.
        read: wanted columns -> table in memory.
        stream: column, ascending rows -> the values there one after the other, without holding the column; None
            where columns are always read whole.
        identity: text that differs whenever the rows may differ; empty where nobody asks.
    """

    name: str
    place: str
    folder: Path | None
    features: Mapping[str, Any]
    read: Callable[[list[str]], pa.Table]
    stream: Callable[[str, np.ndarray], Iterator[Any]] | None = None
    identity: str = ""


def file_identity(file: Path) -> str:
    """Return path, size and time of change of a file."""
    state = file.stat()
    return f"{file.resolve()} {state.st_size} {state.st_mtime_ns}"


def picked(tables: Iterable[pa.Table | pa.RecordBatch], rows: np.ndarray) -> Iterator[Any]:
    """Yield the values of the only column of consecutive tables at ascending rows, counted from the first table."""
    start = 0
    for table in tables:
        stop = start + table.num_rows
        here = rows[np.searchsorted(rows, start) : np.searchsorted(rows, stop)]
        if len(here):
            yield from table.column(0).take(pa.array(here - start)).to_pylist()
        start = stop


def choose_column(
    key: str,
    wanted: str | None,
    features: Mapping[str, Any],
    candidates_of: Callable[[Mapping[str, Any]], list[str]],
    name: str,
) -> str:
    """Return the wanted column, else the only candidate, which is announced.

    Args:
        key: option that names the column, without ``dataset.``.
        wanted: its value; None to guess.
        features: type of each column.
        candidates_of: features -> columns that fit.
        name: of the data set.

    Raises:
        ValueError: no such column, or no or several candidates; lists what there is.
    """
    everything = ", ".join(f"{column} ({kind_of(feature)})" for column, feature in features.items())
    if wanted is not None:
        if wanted not in features:
            close = difflib.get_close_matches(wanted, features, n=1)
            hint = f"; the nearest is {close[0]!r}" if close else ""
            raise ValueError(f"dataset.{key}={wanted!r} is not a column of {name}; it has {everything}{hint}")
        return wanted
    candidates = candidates_of(features)
    if len(candidates) != 1:
        found = f"several columns fit ({', '.join(candidates)})" if candidates else "no column fits"
        raise ValueError(f"dataset {name}: {found}; set dataset.{key}=<column>; columns are {everything}")
    log.info("dataset %s: %s is %r, the only candidate", name, key, candidates[0])
    return candidates[0]


def label_candidates(features: Mapping[str, Any]) -> list[str]:
    """Return columns that are declared as labels, else those of whole numbers or text."""
    declared = [column for column, feature in features.items() if kind_of(feature) == "ClassLabel"]
    return declared or [
        c for c, f in features.items() if kind_of(f).startswith(("int", "uint", "string", "large_string"))
    ]


def kind_of(feature: Any) -> str:
    """Return the kind of a column: ``Image``, ``ClassLabel``, ``struct`` (of bytes and path), or a plain type."""
    if isinstance(feature, Mapping):
        return "struct" if "bytes" in feature else "nested"
    if type(feature).__name__ == "Value":
        return feature.dtype
    return type(feature).__name__


def names_of(feature: Any) -> tuple[str, ...] | None:
    """Return the class names that a column declares, if it does."""
    return tuple(feature.names) if kind_of(feature) == "ClassLabel" else None
