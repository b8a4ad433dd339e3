"""Texts as columns of a table: which columns are meant, and tables to raw texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fedsaf.data.sources.named import named_parts
from fedsaf.data.sources.tables import TablePart, choose_column, kind_of, label_candidates, names_of
from fedsaf.data.sources.text_files import text_parts
from fedsaf.data.texts import RawTexts, TextSource

_TEXT_KINDS = ("string", "large_string", "string_view", "null")
_TEXT_NAMES = frozenset(
    ["text", "sentence", "review", "content", "body", "comment", "tweet", "message", "document", "utterance"]
)
_LABEL_NAMES = frozenset(["label", "labels", "class", "category", "target", "sentiment", "topic", "intent", "y"])


@dataclass(frozen=True, kw_only=True)
class TextTable(TextSource):
    """A source whose samples are rows of a table.

    Attributes:
        path: file, or folder of files of one kind: csv, tsv, lines of JSON, parquet.
        splits: official parts to pool, in this order; None takes every file.
        text_column: one column, or several that are joined by a space; None takes the only column of text, else the
            one with a usual name (text, review, ...), else the one with by far the longest texts.
        label_column: None takes the only column that can hold labels, else the one with a usual name (label, ...).
        group_column: column of the group ids (domain, user); None for none.
    """

    path: str | None
    splits: Sequence[str] | None
    text_column: str | Sequence[str] | None
    label_column: str | None
    group_column: str | None

    def raw_texts(self, name: str, parts: Sequence[TablePart]) -> RawTexts:
        """Pool the parts in order; a missing value of a text column is an empty text.

        Raises:
            ValueError: no or several candidate columns, a column that holds no text, bytes that are no text, or parts
                that lack a column or define it differently.
        """
        features = parts[0].features
        texts = self._text_columns(name, parts[0])
        others = {c: f for c, f in features.items() if c not in (*texts, self.group_column)}
        label = choose_column("label_column", self.label_column, features, lambda _: _likely_labels(others), name)
        group = self.group_column and choose_column("group_column", self.group_column, features, list, name)
        columns = list(dict.fromkeys([*texts, label, *([group] if group else [])]))
        for part in parts:
            for column in columns:
                if part.features.get(column) != features[column]:
                    raise ValueError(
                        f"dataset {name}: part {part.place!r} defines column {column!r} differently "
                        f"({part.features.get(column)}) from {parts[0].place!r} ({features[column]})"
                    )
        tables = [part.read(columns) for part in parts]
        sizes: dict[str, int] = {}
        for part, table in zip(parts, tables, strict=True):
            sizes[part.name] = sizes.get(part.name, 0) + len(table)
        return RawTexts(
            name=name,
            texts=[text for part, table in zip(parts, tables, strict=True) for text in _joined(part, table, texts)],
            labels=[value for table in tables for value in table.column(label).to_pylist()],
            class_names=names_of(features[label]),
            groups=[value for table in tables for value in table.column(group).to_pylist()] if group else None,
            group_names=names_of(features[group]) if group else None,
            parts=sizes,
        )

    def _text_columns(self, name: str, part: TablePart) -> list[str]:
        taken = (self.label_column, self.group_column)
        wanted = [self.text_column] if self.text_column is None or isinstance(self.text_column, str) else None
        columns = [
            choose_column("text_column", column, part.features, lambda _: _likely_texts(part, taken), name)
            for column in wanted or self.text_column
        ]
        for column in columns:
            if kind_of(part.features[column]) not in _TEXT_KINDS:
                raise ValueError(f"dataset.text_column={column!r} holds {kind_of(part.features[column])}, not text")
        if not columns:
            raise ValueError("dataset.text_column=[]: name a column, or null to let it be found")
        return columns


@dataclass(frozen=True, kw_only=True)
class Csv(TextTable):
    """A user's own table of labelled texts: a file, or a folder of files whose names tell the official part."""

    def read(self, seed: int) -> RawTexts:
        """Read the columns from ``path``; the set is called after it."""
        if self.path is None:
            raise ValueError("dataset.path=null: name a file (csv, tsv, jsonl, parquet) or a folder of such files")
        path = Path(self.path).expanduser()
        return self.raw_texts(path.stem, text_parts(path, self.splits))


@dataclass(frozen=True, kw_only=True)
class HubTexts(TextTable):
    """A data set by name: ``path``, else ``$DATA_ROOT/<name>/*.parquet``, else the hub's cache, else the hub.

    Attributes:
        name: name in records, and of the folder below ``$DATA_ROOT``.
        hub_id: ``owner/name`` on the hub; None where no copy is known that loads by its name.
    """

    name: str
    hub_id: str | None

    def read(self, seed: int) -> RawTexts:
        """Read from the first place that has it.

        Raises:
            ValueError: no place has it; names the ways to provide it, within seconds.
        """
        return self.raw_texts(self.name, named_parts(self.name, self.hub_id, self.path, self.splits, text_parts))


def _likely_texts(part: TablePart, taken: Sequence[str | None]) -> list[str]:
    """Narrow the columns of text down: by their names, then to one whose texts are twice as long as any other's."""
    columns = [c for c, f in part.features.items() if kind_of(f) in _TEXT_KINDS and c not in taken]
    columns = [c for c in columns if c.lower() not in _LABEL_NAMES] or columns
    columns = [c for c in columns if c.lower() in _TEXT_NAMES] or columns
    if len(columns) < 2:
        return columns
    table = part.read(columns)
    lengths = {c: pc.mean(pc.binary_length(table.column(c).cast(pa.large_binary()))).as_py() or 0.0 for c in columns}
    *_, second, longest = sorted(columns, key=lengths.__getitem__)
    return [longest] if lengths[longest] > 2 * lengths[second] else columns


def _likely_labels(features: Mapping[str, Any]) -> list[str]:
    """Narrow the columns that can hold labels down by their names."""
    columns = label_candidates(features)
    named = [column for column in columns if column.lower() in _LABEL_NAMES]
    return named if len(named) == 1 else columns


def _joined(part: TablePart, table: pa.Table, columns: Sequence[str]) -> list[str]:
    rows = zip(*(_strings(part, table, column) for column in columns), strict=True)
    return [" ".join(value for value in row if value) for row in rows]


def _strings(part: TablePart, table: pa.Table, column: str) -> list[str | None]:
    values = table.column(column)
    try:
        return values.to_pylist()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{part.place}, row {_first_undecodable(values)}: column {column!r} holds bytes that are not UTF-8"
        ) from error


def _first_undecodable(values: pa.ChunkedArray) -> int:
    for row, value in enumerate(values):
        try:
            value.as_py()
        except UnicodeDecodeError:
            return row
    raise AssertionError("a column that cannot be decoded has a value that cannot")
