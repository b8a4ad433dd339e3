"""Local parquet files, read in place."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedsaf.data.columns import TableSource
from fedsaf.data.images import RawImages
from fedsaf.data.tables import TablePart, file_identity, picked

log = logging.getLogger(__name__)

PARTS = ("train", "valid", "test")
"""Official parts, in the order in which they are pooled."""

_PART_NAME = re.compile(r"(?:(train)(?:ing)?|(val)(?:id|idation)?|(test)(?:ing)?)(?![a-z])")

_BATCH_ROWS = 256

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Parquet(TableSource):
    """A user's own parquet file, or a folder of them."""

    def read(self, seed: int) -> RawImages:
        """Read the columns from ``path``; the set is called after it."""
        if self.path is None:
            raise ValueError("dataset.path=null: name a parquet file or a folder of parquet files")
        path = Path(self.path).expanduser()
        return self.raw_images(path.stem, parquet_parts(path, self.splits))


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
