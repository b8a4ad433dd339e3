"""Tables as data sets: which column is meant, and rows to raw samples."""

from __future__ import annotations

import difflib
import logging
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from fedsaf.data.raw import Items, RawSamples, RawSource
from fedsaf.data.sources.named import named_parts
from fedsaf.data.sources.table_files import SUFFIXES, TablePart, table_parts

if TYPE_CHECKING:
    from datasets import Features
    from datasets.features.features import FeatureType

log = logging.getLogger(__name__)

LABEL_NAMES = frozenset(["label", "labels", "class", "category", "target", "sentiment", "topic", "intent", "y"])


@dataclass(frozen=True, kw_only=True)
class TableSource(RawSource[Items]):
    """A source whose samples are rows of a table; images and texts differ in which column holds them.

    Attributes:
        path: file, or folder of files of one kind whose names tell the official part.
        splits: official parts to pool, in this order; None takes every file.
        label_column: None takes the only column that can hold labels, else the one with a usual name (label, ...).
        group_column: column of the group ids (domain, user); None for none.
    """

    path: str | None
    splits: Sequence[str] | None
    label_column: str | None
    group_column: str | None

    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES
    """Endings of the files that are read."""

    @abstractmethod
    def content_columns(self, name: str, part: TablePart) -> list[str]:
        """Return the columns that hold the samples of the set ``name``, found in its first part."""

    @abstractmethod
    def items(self, parts: Sequence[TablePart], sizes: Sequence[int], columns: list[str]) -> Items:
        """Return the samples that these columns of parts of these sizes hold."""

    def read(self, seed: int) -> RawSamples[Items]:
        """Read the rows of ``path``; the set is called after it."""
        if self.path is None:
            raise ValueError(f"dataset.path=null: name a file or a folder of files ({', '.join(self.suffixes)})")
        path = Path(self.path).expanduser()
        return self.rows(path.stem, table_parts(path, self.splits, self.suffixes))

    def rows(self, name: str, parts: Sequence[TablePart]) -> RawSamples[Items]:
        """Pool the parts in order.

        Raises:
            ValueError: no or several candidate columns, or parts that lack a column or define it differently.
        """
        first, features = parts[0], parts[0].features
        content = self.content_columns(name, first)
        others = {c: f for c, f in features.items() if c not in (*content, self.group_column)}
        label = choose_column("label_column", self.label_column, features, lambda: _label_candidates(others), name)
        group = self.group_column and choose_column("group_column", self.group_column, features, list, name)
        annotations = [column for column in dict.fromkeys((label, group)) if column]
        for part in parts[1:]:
            _check_columns(name, part, first, [*content, *annotations])
        tables = [part.read(annotations) for part in parts]
        sizes: Counter[str] = Counter()
        for part, table in zip(parts, tables, strict=True):
            sizes[part.name] += len(table)
        return RawSamples(
            name=name,
            items=self.items(parts, list(map(len, tables)), content),
            labels=[value for table in tables for value in table.column(label).to_pylist()],
            class_names=names_of(features[label]),
            groups=[value for table in tables for value in table.column(group).to_pylist()] if group else None,
            group_names=names_of(features[group]) if group else None,
            parts=dict(sizes),
            files=[file for part in parts for file in part.files],
        )


@dataclass(frozen=True, kw_only=True)
class NamedTable(TableSource[Items]):
    """A set by name: ``path``, else ``$DATA_ROOT/<name>/*.parquet``, else the hub's cache, else the hub.

    Attributes:
        name: name in records, and of the folder below ``$DATA_ROOT``.
        hub_id: ``owner/name`` on the hub; None where no copy is known that loads by its name.
    """

    name: str
    hub_id: str | None

    def read(self, seed: int) -> RawSamples[Items]:
        """Read the rows of the first place that has them; see `named_parts`."""
        return self.rows(self.name, named_parts(self.name, self.hub_id, self.path, self.splits, self.suffixes))


def choose_column(
    key: str, wanted: str | None, features: Features, candidates_of: Callable[[], list[str]], name: str
) -> str:
    """Return the column that ``dataset.key`` wants, else the only candidate, which is announced.

    No such column, and no or several candidates, raise a ValueError that lists what there is.
    """
    everything = ", ".join(f"{column} ({kind_of(feature)})" for column, feature in features.items())
    if wanted is not None:
        if wanted not in features:
            close = difflib.get_close_matches(wanted, features, n=1)
            hint = f"; the nearest is {close[0]!r}" if close else ""
            raise ValueError(f"dataset.{key}={wanted!r} is not a column of {name}; it has {everything}{hint}")
        return wanted
    candidates = candidates_of()
    if len(candidates) != 1:
        found = f"several columns fit ({', '.join(candidates)})" if candidates else "no column fits"
        raise ValueError(f"dataset {name}: {found}; set dataset.{key}=<column>; columns are {everything}")
    log.info("dataset %s: %s is %r, the only candidate", name, key, candidates[0])
    return candidates[0]


def _check_columns(name: str, part: TablePart, first: TablePart, columns: Sequence[str]) -> None:
    for column in columns:
        if column not in part.features:
            raise ValueError(
                f"dataset {name}: {part.place} has no column {column!r}, which {first.place} has; it has "
                f"{', '.join(part.features)}"
            )
        if part.features[column] != first.features[column]:
            kinds = kind_of(part.features[column]), kind_of(first.features[column])
            raise ValueError(
                f"dataset {name}: {part.place} defines column {column!r} differently from {first.place}: "
                + (f"as {kinds[0]}, not {kinds[1]}" if len(set(kinds)) > 1 else "with other class names")
            )


def _label_candidates(features: Mapping[str, FeatureType]) -> list[str]:
    """Return columns that are declared as labels, else those of whole numbers or text; the one with a usual name."""
    kinds = {column: kind_of(feature) for column, feature in features.items()}
    columns = [c for c, kind in kinds.items() if kind == "ClassLabel"]
    columns = columns or [c for c, kind in kinds.items() if kind.startswith(("int", "uint", "string", "large_string"))]
    named = [column for column in columns if column.lower() in LABEL_NAMES]
    return named if len(named) == 1 else columns


def kind_of(feature: FeatureType) -> str:
    """Return the kind of a column: ``Image``, ``ClassLabel``, ``struct`` (of bytes and path), or a plain type."""
    if isinstance(feature, Mapping):
        return "struct" if "bytes" in feature else "nested"
    return feature.dtype if type(feature).__name__ == "Value" else type(feature).__name__


def names_of(feature: FeatureType) -> tuple[str, ...] | None:
    """Return the class names that a column declares, if it does."""
    return tuple(feature.names) if kind_of(feature) == "ClassLabel" else None
