"""Images before decoding, found but not held: they are read in order when they are decoded."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedsaf.data.tables import TablePart, file_identity

ImageItem = bytes | Path | np.ndarray
"""The bytes of an image file, its path, or a uint8 array (h, w) or (h, w, 3)."""


@dataclass(frozen=True, eq=False)
class Undecoded:
    """One image on its way to the decoder.

    Attributes:
        item: the image; None where the source has a gap.
        place: where it came from, for error messages.
        crop_seed: of the crop and flip that the image is given once, for ever; None for none.
    """

    item: ImageItem | None
    place: str
    crop_seed: int | None = None


class ImageItems(ABC):
    """The images of a source, in pooled order."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of images."""

    @abstractmethod
    def rows(self, keep: np.ndarray) -> Iterator[Undecoded]:
        """Yield the images at these ascending positions; every call starts anew."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """Text that differs whenever the images may differ, found without reading whole files."""


@dataclass(frozen=True, eq=False)
class ListedItems(ImageItems):
    """Images that are in memory, or files of their own.

    Attributes:
        items: n arrays, encoded images or paths.
        places: where each came from.
    """

    items: Sequence[ImageItem]
    places: Sequence[str]

    def __len__(self) -> int:
        return len(self.items)

    def rows(self, keep: np.ndarray) -> Iterator[Undecoded]:
        """Yield from the lists."""
        return (Undecoded(self.items[row], self.places[row]) for row in keep)

    @property
    def identity(self) -> str:
        """Contents of what is in memory; path, size and time of change of files."""
        digest = hashlib.sha256()
        for item in self.items:
            digest.update(file_identity(item).encode() if isinstance(item, Path) else bytes(item))
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class TableItems(ImageItems):
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
        """Yield from one part after the other.

        Raises:
            ValueError: a value that is no encoded image.
        """
        start = 0
        for part, size in zip(self.parts, self.sizes, strict=True):
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
        """Identities of the parts, and the column."""
        return "\n".join([self.column, *(part.identity for part in self.parts)])
