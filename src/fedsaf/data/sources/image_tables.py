"""Images as a column of a table: files of a user's own, or a set by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedsaf.data.decode import Undecoded
from fedsaf.data.files import file_identity
from fedsaf.data.images import ImageItems, ImageSource
from fedsaf.data.sources.table_files import TablePart
from fedsaf.data.sources.tables import NamedTable, TableSource, choose_column, kind_of


@dataclass(frozen=True, kw_only=True)
class Parquet(TableSource[ImageItems], ImageSource):
    """A user's own parquet file of images, or a folder of them.

    ``image_column`` None takes the only column that can hold images.
    """

    image_column: str | None

    suffixes = (".parquet",)

    def content_columns(self, name: str, part: TablePart) -> list[str]:
        """Return the column of the images."""
        kinds = {column: kind_of(feature) for column, feature in part.features.items()}

        def candidates() -> list[str]:
            declared = [column for column, kind in kinds.items() if kind == "Image"]
            return declared or [c for c, kind in kinds.items() if kind in ("binary", "large_binary", "struct")]

        return [choose_column("image_column", self.image_column, part.features, candidates, name)]

    def items(self, parts: Sequence[TablePart], sizes: Sequence[int], columns: list[str]) -> ImageItems:
        """Return the images, none of which is read yet; a value that is no encoded image is named in a ValueError."""
        (column,) = columns

        def rows(keep: np.ndarray) -> Iterator[Undecoded]:
            start = 0
            for part, size in zip(parts, sizes, strict=True):
                assert part.stream is not None  # tables of images are read row by row
                own = keep[np.searchsorted(keep, start) : np.searchsorted(keep, start + size)] - start
                for row, value in zip(own, part.stream(column, own), strict=True):
                    yield Undecoded(_encoded(value, part, column), f"{part.place}, row {row}")
                start += size

        def identity() -> str:
            files = [f"{part.place} {' '.join(map(file_identity, part.files))}" for part in parts]
            return "\n".join([column, *files])

        return ImageItems(sum(sizes), rows, identity)


@dataclass(frozen=True, kw_only=True)
class HubImages(NamedTable[ImageItems], Parquet):
    """Images by the name of their set."""


def _encoded(value: object, part: TablePart, column: str) -> bytes | Path | None:
    """Return an encoded image, or the file beside the table that holds it; None for a gap."""
    if isinstance(value, Mapping):
        if value.get("bytes") is None and value.get("path"):
            return part.files[0].parent / value["path"]
        value = value.get("bytes")
    if not isinstance(value, bytes | None):
        raise ValueError(f"dataset.image_column={column!r} holds {type(value).__name__}, not encoded images")
    return value
