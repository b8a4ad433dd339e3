"""Local tables and their official parts: parquet, csv, tsv, lines of JSON; and how bytes become text."""

from __future__ import annotations

import csv
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from datasets import Features

log = logging.getLogger(__name__)

PARTS = ("train", "valid", "test")
"""Official parts, in the order in which they are pooled."""

BATCH_ROWS = 256
"""Rows that are in memory at once where a column is streamed."""

_PART_NAME = re.compile(r"(?:(train)(?:ing)?|(val)(?:id|idation)?|(test)(?:ing)?)(?![a-z])")
_SUFFIXES = (".csv", ".tsv", ".tab", ".jsonl", ".ndjson", ".json", ".parquet")
_DELIMITERS = ",;\t|"
_LARGEST_BLOCK = 2**30
_HEADER_LENGTH, _HEADER_ROWS = 64, 1000

Entry = TypeVar("Entry")


@dataclass(frozen=True)
class TablePart:
    """One file or split of a table.

    Attributes:
        name: official part that it belongs to.
        place: what error messages call it.
        files: where its rows lie.
        features: type of each column.
        read: wanted columns -> table in memory.
        stream: column, ascending rows -> the values there one after the other, without holding the column; None
            where columns are always read whole.
        folder: where files that its rows name are; None if they hold everything.
    """

    name: str
    place: str
    files: Sequence[Path]
    features: Features
    read: Callable[[list[str]], pa.Table]
    stream: Callable[[str, np.ndarray], Iterator[Any]] | None = None
    folder: Path | None = None


def part_of(name: str) -> str | None:
    """Return the official part that a file or folder name stands for, or None.

    >>> part_of("train-00000-of-00002"), part_of("validation"), part_of("trainers")
    ('train', 'valid', None)
    """
    match = _PART_NAME.match(name.lower())
    return None if match is None or match.lastindex is None else PARTS[match.lastindex - 1]


def pooled_order(
    found: Sequence[tuple[str, Entry]], splits: Sequence[str] | None, place: str
) -> list[tuple[str, Entry]]:
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


def table_files(path: Path, splits: Sequence[str] | None, suffixes: Collection[str], what: str) -> list[Path]:
    """List a file, or those of a folder in pooled order; one whose name is no part's is a part of its own.

    Args:
        path: a file of any name, or a folder; where it holds no such file itself, those below it are taken.
        splits: official parts to pool, in this order; None takes every file.
        suffixes: endings of the wanted files, in lower case, with the dot.
        what: what they are called in messages.

    Raises:
        ValueError: no such path, no such file in it, or none of the splits.
    """
    if not path.exists():
        raise ValueError(f"dataset.path={str(path)!r} does not exist")
    if path.is_file():
        return [path]

    def wanted(files: Iterable[Path]) -> list[Path]:
        return sorted(f for f in files if f.suffix.lower() in suffixes and f.is_file() and f.name[0] != ".")

    files = wanted(path.glob("*")) or wanted(path.rglob("*"))
    if not files:
        raise ValueError(f"dataset.path={str(path)!r} holds no {what}")
    return [file for _, file in pooled_order([(part_name(file), file) for file in files], splits, str(path))]


def part_name(file: Path) -> str:
    """Return the part that a file belongs to: an official one by its name, else one of its own."""
    return part_of(file.stem) or file.stem


def parquet_parts(path: Path, splits: Sequence[str] | None) -> list[TablePart]:
    """List a parquet file, or those of a folder, as parts in pooled order; see `table_files`."""
    return [_parquet_part(file) for file in table_files(path, splits, (".parquet",), ".parquet file")]


def text_parts(path: Path, splits: Sequence[str] | None) -> list[TablePart]:
    """List a table of texts, or those of a folder, which are of one kind, as parts in pooled order; see `table_files`.

    Raises:
        ValueError: tables of several kinds, or an unreadable file; and see `table_files`.
    """
    files = table_files(path, splits, _SUFFIXES, f"table of texts: {', '.join(_SUFFIXES)}")
    kinds = sorted({file.suffix.lower() for file in files})
    if kinds[0] not in _SUFFIXES:
        raise ValueError(f"dataset.path={str(path)!r} is none of the files that can be read: {', '.join(_SUFFIXES)}")
    if len(kinds) > 1:
        raise ValueError(f"dataset.path={str(path)!r} holds tables of several kinds, {', '.join(kinds)}; name one file")
    return [_parquet_part(file) if kinds == [".parquet"] else _held_part(file) for file in files]


def _held_part(file: Path) -> TablePart:
    """Return a table of texts, which is read at once."""
    from datasets import Features  # costs a second; sets that need no table do without

    table = _read_json(file) if "json" in file.suffix.lower() else _read_csv(file)
    return TablePart(part_name(file), file.name, [file], Features.from_arrow_schema(table.schema), table.select)


def _parquet_part(file: Path) -> TablePart:
    """Return a parquet file, whose columns can be read in place."""
    from datasets import Features  # see above

    try:
        features = Features.from_arrow_schema(pq.read_schema(file))
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"dataset.path: {file} is not a readable parquet file: {error}") from error

    def read(columns: list[str]) -> pa.Table:
        return pq.read_table(file, columns=columns)

    return TablePart(part_name(file), file.name, [file], features, read, partial(_stream_parquet, file), file.parent)


def _stream_parquet(file: Path, column: str, rows: np.ndarray) -> Iterator[Any]:
    """Yield values in the order of the file; row groups without a wanted row are not read."""
    start = 0
    with pq.ParquetFile(file, memory_map=True) as source:
        for group in range(source.num_row_groups):
            stop = start + source.metadata.row_group(group).num_rows
            here = rows[np.searchsorted(rows, start) : np.searchsorted(rows, stop)] - start
            if len(here):
                yield from picked(source.iter_batches(BATCH_ROWS, row_groups=[group], columns=[column]), here)
            start = stop


def picked(tables: Iterable[pa.Table | pa.RecordBatch], rows: np.ndarray) -> Iterator[Any]:
    """Yield the values of the only column of consecutive tables at ascending rows, counted from the first table."""
    start = 0
    for table in tables:
        stop = start + table.num_rows
        here = rows[np.searchsorted(rows, start) : np.searchsorted(rows, stop)]
        if len(here):
            yield from table.column(0).take(pa.array(here - start)).to_pylist()
        start = stop


def utf8(file: Path) -> str:
    """Return the text of a file, without a byte order mark.

    Raises:
        ValueError: a byte that is not UTF-8, with file and line.
    """
    raw = file.read_bytes()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{file}, line {line}: byte 0x{raw[error.start]:02x} is not UTF-8; save the file in that encoding"
        ) from error


def _read_csv(file: Path) -> pa.Table:
    """Read a table with a header line; quoted values may hold line breaks and delimiters."""
    header = utf8(file).partition("\n")[0]
    widths = {d: len(next(csv.reader([header], delimiter=d), [])) for d in _DELIMITERS}
    delimiter = max(widths, key=widths.__getitem__) if file.suffix.lower() == ".csv" else "\t"
    try:
        table = pa.csv.read_csv(
            file,
            pa.csv.ReadOptions(block_size=_block_size(file)),
            pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            pa.csv.ConvertOptions(
                null_values=[""], strings_can_be_null=True, true_values=[], false_values=[], timestamp_parsers=[]
            ),
        )
    except pa.ArrowInvalid as error:
        raise ValueError(f"dataset.path: {file} is not a table with delimiter {delimiter!r}: {error}") from error
    if not len(table):
        raise ValueError(f"dataset.path: {file} holds a header and no row")
    names = table.column_names
    for name, column in zip(names, table.columns, strict=True):  # a first line that is data
        again = pc.is_in(pa.array([name]), column.slice(0, _HEADER_ROWS).cast(pa.string()))[0].as_py()
        number = name.strip().lstrip("+-").replace(".", "", 1).isdigit()
        if number or again or len(name) > _HEADER_LENGTH or (name.strip() and names.count(name) > 1):
            raise ValueError(
                f"dataset.path: {file} seems to lack a header: its first line gives the column name {name[:40]!r}; "
                "add a first line such as text,label"
            )
    return table.drop_columns([name for name in names if not name.strip()])  # row numbers that pandas writes


def _read_json(file: Path) -> pa.Table:
    """Read one JSON object per line."""
    if utf8(file).lstrip()[:1] == "[":
        raise ValueError(f"dataset.path: {file} is one JSON array; write one object per line")
    try:
        return pa.json.read_json(file, pa.json.ReadOptions(block_size=_block_size(file)))
    except pa.ArrowInvalid as error:
        raise ValueError(f"dataset.path: {file} does not hold one JSON object per line: {error}") from error


def _block_size(file: Path) -> int:
    """Return a size that holds every row, however long, as far as the reader can."""
    return min(max(file.stat().st_size, 1) + 1, _LARGEST_BLOCK)
