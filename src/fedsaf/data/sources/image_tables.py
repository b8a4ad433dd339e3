"""Images as a column of a table: files of a user's own, or a set by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedsaf.data.decode import Undecoded
from fedsaf.data.images import ImageItems, ImageSource, RawImages
from fedsaf.data.sources.named import named_parts
from fedsaf.data.sources.tables import (
    TablePart,
    choose_column,
    kind_of,
    label_candidates,
    names_of,
    parquet_parts,
)


@dataclass(frozen=True, kw_only=True)
class TableSource(ImageSource):
    """A source whose samples are rows of a table.

    Attributes:
        path: parquet file, or folder of parquet files.
        splits: official parts to pool, in this order; None takes every file.
        image_column: None takes the only column that can hold images.
        label_column: None takes the only column that can hold labels.
        group_column: column of the group ids (domain, user); None for none.
    """

    path: str | None
    splits: Sequence[str] | None
    image_column: str | None
    label_column: str | None
    group_column: str | None

    def raw_images(self, name: str, parts: Sequence[TablePart]) -> RawImages:
        """Pool the parts in order; labels and groups are read, images are not.

        Raises:
            ValueError: no or several candidate columns, or parts that lack a column or name their classes differently.
        """
        features = parts[0].features
        image = choose_column("image_column", self.image_column, features, _image_candidates, name)
        others = {c: kind for c, kind in features.items() if c not in (image, self.group_column)}
        label = choose_column("label_column", self.label_column, features, lambda _: label_candidates(others), name)
        group = self.group_column and choose_column("group_column", self.group_column, features, list, name)
        columns = [column for column in dict.fromkeys((label, group)) if column]
        for part in parts:
            for column in (image, *columns):
                if column not in part.features:
                    raise ValueError(
                        f"dataset {name}: {part.place} has no column {column!r}, which {parts[0].place} has; it has "
                        f"{', '.join(part.features)}"
                    )
                if part.features[column] != features[column]:
                    raise ValueError(
                        f"dataset {name}: {part.place} defines column {column!r} differently from {parts[0].place}: "
                        "another type, or other class names"
                    )
        tables = [part.read(columns) for part in parts]
        sizes: dict[str, int] = {}
        for part, table in zip(parts, tables, strict=True):
            sizes[part.name] = sizes.get(part.name, 0) + len(table)
        return RawImages(
            name=name,
            items=TableItems(parts, [len(table) for table in tables], image),
            labels=[value for table in tables for value in table.column(label).to_pylist()],
            class_names=names_of(features[label]),
            groups=[value for table in tables for value in table.column(group).to_pylist()] if group else None,
            group_names=names_of(features[group]) if group else None,
            parts=sizes,
        )


@dataclass(frozen=True, kw_only=True)
class Parquet(TableSource):
    """A user's own parquet file, or a folder of them."""

    def read(self, seed: int) -> RawImages:
        """Read the columns from ``path``; the set is called after it."""
        if self.path is None:
            raise ValueError("dataset.path=null: name a parquet file or a folder of parquet files")
        path = Path(self.path).expanduser()
        return self.raw_images(path.stem, parquet_parts(path, self.splits))


@dataclass(frozen=True, kw_only=True)
class HubImages(TableSource):
    """A data set by name: ``path``, else ``$DATA_ROOT/<name>/*.parquet``, else the hub's cache, else the hub.

    Attributes:
        name: name in records, and of the folder below ``$DATA_ROOT``.
        hub_id: ``owner/name`` on the hub; None where no copy is known that loads by its name.
    """

    name: str
    hub_id: str | None

    def read(self, seed: int) -> RawImages:
        """Read from the first place that has it.

        Raises:
            ValueError: no place has it; names the ways to provide it, within seconds.
        """
        return self.raw_images(self.name, named_parts(self.name, self.hub_id, self.path, self.splits, parquet_parts))


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


def _image_candidates(features: Mapping[str, Any]) -> list[str]:
    declared = [column for column, feature in features.items() if kind_of(feature) == "Image"]
    return declared or [c for c, f in features.items() if kind_of(f) in ("binary", "large_binary", "struct")]
