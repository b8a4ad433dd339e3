"""Local tables of texts: csv, tsv, lines of JSON, parquet; and how bytes become text."""

from __future__ import annotations

import csv
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from fedsaf.data.sources.tables import TablePart, file_identity, parquet_parts, part_of, pooled_order

log = logging.getLogger(__name__)

_DELIMITERS = ",;\t|"
_LARGEST_BLOCK = 2**30
_HEADER_LENGTH = 64
_HEADER_ROWS = 1000


def text_parts(path: Path, splits: Sequence[str] | None) -> list[TablePart]:
    """List tables as parts, in pooled order; a file whose name is no part's is a part of its own.

    Args:
        path: a file, or a folder of files of one kind.
        splits: official parts to pool, in this order; None takes every file.

    Raises:
        ValueError: no such path, no table in it, tables of several kinds, none of the splits, or an unreadable file.
    """
    if not path.exists():
        raise ValueError(f"dataset.path={str(path)!r} does not exist")
    kinds = ", ".join(_READERS)
    if path.is_file():
        if path.suffix.lower() not in _READERS:
            raise ValueError(f"dataset.path={str(path)!r} is none of the files that can be read: {kinds}")
        return [_READERS[path.suffix.lower()](path)]
    files = _tables(path.glob("*")) or _tables(path.rglob("*"))
    if not files:
        raise ValueError(f"dataset.path={str(path)!r} holds no table of texts: {kinds}")
    found = sorted({file.suffix.lower() for file in files})
    if len(found) > 1:
        raise ValueError(f"dataset.path={str(path)!r} holds tables of several kinds, {', '.join(found)}; name one file")
    named = [(part_of(file.stem) or file.stem, file) for file in files]
    return [_READERS[found[0]](file) for _, file in pooled_order(named, splits, str(path))]


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


def _tables(files: Iterable[Path]) -> list[Path]:
    return sorted(file for file in files if file.suffix.lower() in _READERS and not file.name.startswith("."))


def _csv_part(file: Path) -> TablePart:
    """Read a table with a header line; quoted values may hold line breaks and delimiters."""
    header = utf8(file).partition("\n")[0]
    delimiter = "\t" if file.suffix.lower() != ".csv" else max(_DELIMITERS, key=lambda d: _width(header, d))
    options = pa.csv.ConvertOptions(
        null_values=[""], strings_can_be_null=True, true_values=[], false_values=[], timestamp_parsers=[]
    )
    try:
        table = pa.csv.read_csv(
            file,
            pa.csv.ReadOptions(block_size=_block_size(file)),
            pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            options,
        )
    except pa.ArrowInvalid as error:
        raise ValueError(f"dataset.path: {file} is not a table with delimiter {delimiter!r}: {error}") from error
    if not len(table):
        raise ValueError(f"dataset.path: {file} holds a header and no row")
    _check_header(file, table)
    index = [name for name in table.column_names if not name.strip()]  # row numbers that pandas writes
    return _part(file, table.drop_columns(index))


def _width(line: str, delimiter: str) -> int:
    return len(next(csv.reader([line], delimiter=delimiter), []))


def _check_header(file: Path, table: pa.Table) -> None:
    """Refuse a first line that is data: numbers, long texts, or values that its column holds again."""
    names = table.column_names
    for name, column in zip(names, table.columns, strict=True):
        again = pc.is_in(pa.array([name]), column.slice(0, _HEADER_ROWS).cast(pa.string()))[0].as_py()
        number = name.strip().lstrip("+-").replace(".", "", 1).isdigit()
        if number or again or len(name) > _HEADER_LENGTH or (name.strip() and names.count(name) > 1):
            raise ValueError(
                f"dataset.path: {file} seems to lack a header: its first line gives the column name {name[:40]!r}; "
                "add a first line such as text,label"
            )


def _json_part(file: Path) -> TablePart:
    """Read one JSON object per line."""
    if utf8(file).lstrip()[:1] == "[":
        raise ValueError(f"dataset.path: {file} is one JSON array; write one object per line")
    try:
        table = pa.json.read_json(file, pa.json.ReadOptions(block_size=_block_size(file)))
    except pa.ArrowInvalid as error:
        raise ValueError(f"dataset.path: {file} does not hold one JSON object per line: {error}") from error
    return _part(file, table)


def _parquet_part(file: Path) -> TablePart:
    return parquet_parts(file, None)[0]


def _part(file: Path, table: pa.Table) -> TablePart:
    from datasets import Features  # costs a second; sets that need no table do without

    features = Features.from_arrow_schema(table.schema)
    name = part_of(file.stem) or file.stem
    return TablePart(name, file.name, file.parent, features, table.select, identity=file_identity(file))


def _block_size(file: Path) -> int:
    """Return a size that holds every row, however long, as far as the reader can."""
    return min(max(file.stat().st_size, 1) + 1, _LARGEST_BLOCK)


_READERS: dict[str, Callable[[Path], TablePart]] = {
    ".csv": _csv_part,
    ".tsv": _csv_part,
    ".tab": _csv_part,
    ".jsonl": _json_part,
    ".ndjson": _json_part,
    ".json": _json_part,
    ".parquet": _parquet_part,
}
