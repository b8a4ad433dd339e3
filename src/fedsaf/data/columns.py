"""Images as a column of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedsaf.data.images import ImageSource, RawImages
from fedsaf.data.items import TableItems
from fedsaf.data.tables import TablePart, choose_column, kind_of, label_candidates, names_of


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


def _image_candidates(features: Mapping[str, Any]) -> list[str]:
    declared = [column for column, feature in features.items() if kind_of(feature) == "Image"]
    return declared or [c for c, f in features.items() if kind_of(f) in ("binary", "large_binary", "struct")]
