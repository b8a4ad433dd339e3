"""Images as a column of a table: files of a user's own, or a set by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedsaf.data.decode import Undecoded
from fedsaf.data.files import file_identity
from fedsaf.data.images import ImageItems, ImageSource
from fedsaf.data.raw import RawSamples
from fedsaf.data.sources.table_files import TablePart, parquet_parts
from fedsaf.data.sources.tables import TableSource, choose_column, kind_of


@dataclass(frozen=True, eq=False)
class TableItems:
    """One column of a table's parts.

    Attributes:
        parts: in pooled order.
        sizes: rows of each.
        column: name of the column.
    """

    parts: Sequence[TablePart]
    sizes: Sequence[int]
    column: str

    def __len__(self) -> int:
        return sum(self.sizes)

    def rows(self, keep: np.ndarray) -> Iterator[Undecoded]:
        """Yield from one part after the other; a value that is no encoded image is named in a ValueError."""
        start = 0
        for part, size in zip(self.parts, self.sizes, strict=True):
            assert part.stream is not None  # tables of images are read row by row
            own = keep[np.searchsorted(keep, start) : np.searchsorted(keep, start + size)] - start
            for row, value in zip(own, part.stream(self.column, own), strict=True):
                yield Undecoded(self._item(value, part), f"{part.place}, row {row}")
            start += size

    def _item(self, value: Any, part: TablePart) -> bytes | Path | None:
        if isinstance(value, Mapping):
            if value.get("bytes") is None and value.get("path"):
                return (part.folder or Path()) / value["path"]
            value = value.get("bytes")
        if not isinstance(value, bytes | None):
            raise ValueError(f"dataset.image_column={self.column!r} holds {type(value).__name__}, not encoded images")
        return value

    @property
    def identity(self) -> str:
        """The column; names, paths, sizes and times of change of the parts."""
        parts = [f"{part.place} {' '.join(map(file_identity, part.files))}" for part in self.parts]
        return "\n".join([self.column, *parts])


@dataclass(frozen=True, kw_only=True)
class ImageTable(TableSource[ImageItems], ImageSource):
    """A parquet table of images.

    Attributes:
        image_column: None takes the only column that can hold images.
    """

    image_column: str | None

    local_parts = staticmethod(parquet_parts)

    def content_columns(self, name: str, part: TablePart) -> list[str]:
        """Return the column of the images."""

        def candidates(features: Mapping[str, Any]) -> list[str]:
            declared = [column for column, feature in features.items() if kind_of(feature) == "Image"]
            return declared or [c for c, f in features.items() if kind_of(f) in ("binary", "large_binary", "struct")]

        return [choose_column("image_column", self.image_column, part.features, candidates, name)]

    def items(self, parts: Sequence[TablePart], sizes: Sequence[int], columns: list[str]) -> ImageItems:
        """Return the images; none is read yet."""
        return TableItems(parts, sizes, columns[0])


@dataclass(frozen=True, kw_only=True)
class Parquet(ImageTable):
    """A user's own parquet file, or a folder of them whose names tell the official part."""

    def read(self, seed: int) -> RawSamples[ImageItems]:
        """Find the columns in ``path``; the set is called after it."""
        return self.own_rows("a parquet file or a folder of parquet files")


@dataclass(frozen=True, kw_only=True)
class HubImages(ImageTable):
    """A data set by name: ``path``, else ``$DATA_ROOT/<name>/*.parquet``, else the hub's cache, else the hub.

    Attributes:
        name: name in records, and of the folder below ``$DATA_ROOT``.
        hub_id: ``owner/name`` on the hub; None where no copy is known that loads by its name.
    """

    name: str
    hub_id: str | None

    def read(self, seed: int) -> RawSamples[ImageItems]:
        """Read from the first place that has it."""
        return self.named_rows(self.name, self.hub_id)
