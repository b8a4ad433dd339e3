"""Tables as data sets: their official parts, what their columns hold, and which one is meant."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

log = logging.getLogger(__name__)

PARTS = ("train", "valid", "test")
"""Official parts, in the order in which they are pooled."""

_PART_NAME = re.compile(r"(?:(train)(?:ing)?|(val)(?:id|idation)?|(test)(?:ing)?)(?![a-z])")

_BATCH_ROWS = 256

T = TypeVar("T")


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


def part_of(name: str) -> str | None:
    """Return the official part that a file or folder name stands for, or None.

    >>> part_of("train-00000-of-00002"), part_of("validation"), part_of("trainers")
    ('train', 'valid', None)
    """
    match = _PART_NAME.match(name.lower())
    return None if match is None else PARTS[match.lastindex - 1]


def parquet_parts(path: Path, splits: Sequence[str] | None) -> list[TablePart]:
    """List parquet files as parts, in pooled order; a file whose name is no part's is a part of its own.

    Raises:
        ValueError: no such path, no parquet file in it, none of the splits, or an unreadable file.
    """
    if not path.exists():
        raise ValueError(f"dataset.path={str(path)!r} does not exist")
    if path.is_file():
        return [_part(part_of(path.stem) or path.stem, path)]
    files = sorted(path.glob("*.parquet")) or sorted(path.rglob("*.parquet"))
    if not files:
        raise ValueError(f"dataset.path={str(path)!r} holds no .parquet file")
    named = [(part_of(file.stem) or file.stem, file) for file in files]
    return [_part(name, file) for name, file in pooled_order(named, splits, str(path))]


def pooled_order(found: Sequence[tuple[str, T]], splits: Sequence[str] | None, place: str) -> list[tuple[str, T]]:
    """Sort (part, entry) pairs by part: as ``splits`` say, leaving out others; or train, valid, test, the rest.

    A wanted part that is absent is named in a warning, as its samples are not pooled.

    Raises:
        ValueError: none of the wanted parts is there.
    """
    names = {part for part, _ in found}
    order = list(splits) if splits is not None else [*PARTS, *sorted(names.difference(PARTS))]
    absent = [part for part in order if part not in names]
    if len(absent) == len(order):
        raise ValueError(f"dataset.splits={order}: none of these parts is in {place}, which holds {sorted(names)}")
    if splits is not None and absent:
        log.warning("%s has no part %s: only the others are pooled", place, ", ".join(absent))
    return sorted((entry for entry in found if entry[0] in order), key=lambda entry: order.index(entry[0]))


def _part(name: str, file: Path) -> TablePart:
    from datasets import Features  # costs a second; runs on embedded data do without

    try:
        features = Features.from_arrow_schema(pq.read_schema(file))
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"dataset.path: {file} is not a readable parquet file: {error}") from error
    read, stream = partial(_read, file), partial(_stream, file)
    return TablePart(name, file.name, file.parent, features, read, stream, file_identity(file))


def _read(file: Path, columns: list[str]) -> pa.Table:
    return pq.read_table(file, columns=columns)


def _stream(file: Path, column: str, rows: np.ndarray) -> Iterator[Any]:
    """Yield values in the order of the file; row groups without a wanted row are not read."""
    start = 0
    with pq.ParquetFile(file, memory_map=True) as source:
        for group in range(source.num_row_groups):
            stop = start + source.metadata.row_group(group).num_rows
            here = rows[np.searchsorted(rows, start) : np.searchsorted(rows, stop)] - start
            if len(here):
                yield from picked(source.iter_batches(_BATCH_ROWS, row_groups=[group], columns=[column]), here)
            start = stop
