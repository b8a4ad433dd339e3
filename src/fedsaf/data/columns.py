"""Which column of a table is the image, which the label; and tables to raw images."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from fedsaf.data.datasets import ImageSource, RawImages

log = logging.getLogger(__name__)


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
        """Pool the parts in order.

        Raises:
            ValueError: no or several candidate columns, or parts that name their classes differently.
        """
        features = parts[0].features
        image = _choose("image_column", self.image_column, features, _image_candidates, name)
        taken = {image, self.group_column}

        def label_candidates(columns: Mapping[str, Any]) -> list[str]:
            return _label_candidates({c: kind for c, kind in columns.items() if c not in taken})

        label = _choose("label_column", self.label_column, features, label_candidates, name)
        group = self.group_column and _choose("group_column", self.group_column, features, list, name)
        for part in parts:
            if part.features.get(label) != features[label]:
                raise ValueError(f"dataset {name}: part {part.name!r} defines column {label!r} differently")
        columns = [column for column in dict.fromkeys((image, label, group)) if column]
        tables = [part.read(columns) for part in parts]
        items = [item for part, table in zip(parts, tables, strict=True) for item in _items(table, image, part.folder)]
        sizes: dict[str, int] = {}
        for part, table in zip(parts, tables, strict=True):
            sizes[part.name] = sizes.get(part.name, 0) + len(table)
        return RawImages(
            name=name,
            items=items,
            places=[f"{p.place}, row {i}" for p, t in zip(parts, tables, strict=True) for i in range(len(t))],
            labels=[value for table in tables for value in table.column(label).to_pylist()],
            class_names=_names(features[label]),
            groups=[value for table in tables for value in table.column(group).to_pylist()] if group else None,
            group_names=_names(features[group]) if group else None,
            parts=sizes,
        )


@dataclass(frozen=True)
class TablePart:
    """A part of a table set: ``read`` gives the wanted columns, ``features`` describes all of them."""

    name: str
    place: str
    folder: Path | None
    features: Mapping[str, Any]
    read: Callable[[list[str]], pa.Table]


def _choose(
    key: str,
    wanted: str | None,
    features: Mapping[str, Any],
    candidates_of: Callable[[Mapping[str, Any]], list[str]],
    name: str,
) -> str:
    everything = ", ".join(f"{column} ({_kind(feature)})" for column, feature in features.items())
    if wanted is not None:
        if wanted not in features:
            raise ValueError(f"dataset.{key}={wanted!r} is not a column of {name}; it has {everything}")
        return wanted
    candidates = candidates_of(features)
    if len(candidates) != 1:
        found = f"several columns fit ({', '.join(candidates)})" if candidates else "no column fits"
        raise ValueError(f"dataset {name}: {found}; set dataset.{key}=<column>; columns are {everything}")
    log.info("dataset %s: %s is %r, the only candidate", name, key, candidates[0])
    return candidates[0]


def _image_candidates(features: Mapping[str, Any]) -> list[str]:
    declared = [column for column, feature in features.items() if _kind(feature) == "Image"]
    return declared or [c for c, f in features.items() if _kind(f) in ("binary", "large_binary", "struct")]


def _label_candidates(features: Mapping[str, Any]) -> list[str]:
    declared = [column for column, feature in features.items() if _kind(feature) == "ClassLabel"]
    return declared or [
        c for c, f in features.items() if _kind(f).startswith(("int", "uint", "string", "large_string"))
    ]


def _kind(feature: Any) -> str:
    if isinstance(feature, Mapping):
        return "struct" if "bytes" in feature else "nested"
    return getattr(feature, "dtype", None) if type(feature).__name__ == "Value" else type(feature).__name__


def _names(feature: Any) -> tuple[str, ...] | None:
    return tuple(feature.names) if _kind(feature) == "ClassLabel" else None


def _items(table: pa.Table, column: str, folder: Path | None) -> list[bytes | Path | None]:
    def item(value: Any) -> bytes | Path | None:
        if isinstance(value, Mapping):
            if value.get("bytes") is None and value.get("path"):
                return (folder or Path()) / value["path"]
            return value.get("bytes")
        return value

    values = [item(value) for value in table.column(column).to_pylist()]
    strange = next((v for v in values if not isinstance(v, bytes | Path | None)), None)
    if strange is not None:
        raise ValueError(f"dataset.image_column={column!r} holds {type(strange).__name__}, not encoded images")
    return values
