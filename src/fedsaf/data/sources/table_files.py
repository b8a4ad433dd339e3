"""Local tables and their official parts: parquet, csv, tsv, lines of JSON; and how bytes become text."""

from __future__ import annotations

import csv
import io
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
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

SUFFIXES = (".csv", ".tsv", ".tab", ".jsonl", ".ndjson", ".json", ".parquet")
"""Endings of the tables that can be read."""

BATCH_ROWS = 256
"""Rows that are in memory at once where a column is streamed."""

_PART_NAME = re.compile(r"(?:(train)(?:ing)?|(val)(?:id|idation)?|(test)(?:ing)?)(?![a-z])")
_LARGEST_BLOCK = 2**30

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
    """

    name: str
    place: str
    files: Sequence[Path]
    features: Features
    read: Callable[[list[str]], pa.Table]
    stream: Callable[[str, np.ndarray], Iterator[Any]] | None = None


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

    A wanted part that is absent is named in a warning; if none of them is there, a ValueError.
    """
    names = {part for part, _ in found}
    order = list(splits) if splits is not None else [*PARTS, *sorted(names.difference(PARTS))]
    absent = [part for part in order if part not in names]
    if len(absent) == len(order):
        raise ValueError(f"dataset.splits={order}: none of these parts is in {place}, which holds {sorted(names)}")
    if splits is not None and absent:
        log.warning("%s has no part %s: only the others are pooled", place, ", ".join(absent))
    return sorted((entry for entry in found if entry[0] in order), key=lambda entry: order.index(entry[0]))


def table_parts(path: Path, splits: Sequence[str] | None, suffixes: Sequence[str] = SUFFIXES) -> list[TablePart]:
    """List a file, or those of a folder in pooled order; one whose name is no part's is a part of its own.

    Args:
        path: a file, or a folder; where it holds no such file itself, those below it are taken.
        splits: official parts to pool, in this order; None takes every file.
        suffixes: endings of the wanted files; a file of any name is parquet if that is the only kind.

    Raises:
        ValueError: no such path, no such file in it, several kinds of them, none of the splits, or an unreadable file.
    """

    def wanted(files: Iterable[Path]) -> list[Path]:
        return sorted(f for f in files if f.suffix.lower() in suffixes and f.is_file() and f.name[0] != ".")

    if not path.exists():
        raise ValueError(f"dataset.path={str(path)!r} does not exist")
    files = [path] if path.is_file() else wanted(path.glob("*")) or wanted(path.rglob("*"))
    if not files:
        raise ValueError(f"dataset.path={str(path)!r} holds no table that can be read: {', '.join(suffixes)}")
    kinds = sorted({file.suffix.lower() for file in files}) if len(suffixes) > 1 else list(suffixes)
    if kinds[0] not in suffixes:
        raise ValueError(f"dataset.path={str(path)!r} is none of the files that can be read: {', '.join(suffixes)}")
    if len(kinds) > 1:
        raise ValueError(f"dataset.path={str(path)!r} holds tables of several kinds, {', '.join(kinds)}; name one file")
    named = [(part_of(file.stem) or file.stem, file) for file in files]
    if not path.is_file():
        named = pooled_order(named, splits, str(path))
    return [_part(name, file, kinds[0]) for name, file in named]


def _part(name: str, file: Path, kind: str) -> TablePart:
    """Return a parquet file, whose columns can be read in place, or another table, which is read at once."""
    from datasets import Features  # costs a second; sets that need no table do without

    if kind != ".parquet":
        table = _read_json(file) if "json" in kind else _read_csv(file, "\t" if kind != ".csv" else None)
        return TablePart(name, file.name, [file], Features.from_arrow_schema(table.schema), table.select)
    try:
        features = Features.from_arrow_schema(pq.read_schema(file))
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"dataset.path: {file} is not a readable parquet file: {error}") from error

    def read(columns: list[str]) -> pa.Table:
        return pq.read_table(file, columns=columns)

    return TablePart(name, file.name, [file], features, read, partial(_stream_parquet, file))


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
    """Return the text of a file, without a byte order mark; bytes that are not UTF-8 raise ValueError with the line."""
    raw = file.read_bytes()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{file}, line {line}: byte 0x{raw[error.start]:02x} is not UTF-8; save the file in that encoding"
        ) from error


def _read_csv(file: Path, delimiter: str | None) -> pa.Table:
    """Read a table with a header line; quoted values may hold line breaks and delimiters."""
    text = utf8(file)
    if delimiter is None:
        header = text.partition("\n")[0]
        delimiter = max(",;\t|", key=lambda each: len(next(csv.reader([header], delimiter=each), [])))
    try:
        table = pa.csv.read_csv(
            file,
            pa.csv.ReadOptions(block_size=_block_size(file)),
            pa.csv.ParseOptions(delimiter=delimiter, quote_char=_quote(file, text, delimiter), newlines_in_values=True),
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
        again = pc.is_in(pa.array([name]), column.slice(0, 1000).cast(pa.string()))[0].as_py()
        number = name.strip().lstrip("+-").replace(".", "", 1).isdigit()
        if number or again or len(name) > 64 or (name.strip() and names.count(name) > 1):
            raise ValueError(
                f"dataset.path: {file} seems to lack a header: its first line gives the column name {name[:40]!r}; "
                "add a first line such as text,label"
            )
    return table.drop_columns([name for name in names if not name.strip()])  # row numbers that pandas writes


def _quote(file: Path, text: str, delimiter: str) -> str | bool:
    """Return the quotation mark; False where those of a table with tabs stand for themselves.

    So they do if a value that begins with one does not end with one, or would swallow lines. A reader that takes them
    for quotes all the same loses rows in silence; with another delimiter that is a ValueError.
    """
    csv.field_size_limit(_LARGEST_BLOCK)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        swallows = any("\n" in value and "\t" in value for row in rows for value in row)
    except csv.Error as error:
        if delimiter != "\t":
            raise ValueError(
                f"dataset.path: {file}, line {rows.line_num}: {error}; a value that begins with a quotation mark has "
                "to end with one, and those within it are doubled"
            ) from error
        return False
    return False if swallows and delimiter == "\t" else '"'


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
