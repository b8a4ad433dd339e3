"""Texts as columns of a table: files of a user's own, or a set by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from fedsaf.data.raw import RawSamples
from fedsaf.data.sources.table_files import TablePart
from fedsaf.data.sources.tables import LABEL_NAMES, NamedTable, TableSource, choose_column, kind_of
from fedsaf.data.texts import TextSource

_TEXT_KINDS = ("string", "large_string", "string_view", "null")
_TEXT_NAMES = frozenset(
    ["text", "sentence", "review", "content", "body", "comment", "tweet", "message", "document", "utterance"]
)
_NAMED_ROWS = 20


@dataclass(frozen=True, kw_only=True)
class Csv(TableSource[Sequence[str]], TextSource):
    """A user's own table of labelled texts: csv, tsv, lines of JSON, parquet, or a folder of them.

    ``text_column`` is one column, or several that are joined by a space; None takes the only column of text, else the
    one with a usual name (text, review, ...), else the one with by far the longest texts.
    """

    text_column: str | Sequence[str] | None

    def rows(self, name: str, parts: Sequence[TablePart]) -> RawSamples[Sequence[str]]:
        """Pool the parts; labels that are nearly all different, such as row ids, are refused."""
        raw = super().rows(name, parts)
        distinct, rows = len(set(raw.labels)), len(raw.labels)
        if raw.class_names is None and rows >= _NAMED_ROWS and 2 * distinct > rows:
            raise ValueError(
                f"dataset {name}: the labels have {distinct} different values in {rows} rows, such as "
                f"{raw.labels[0]!r}; is dataset.label_column right?"
            )
        return raw

    def content_columns(self, name: str, part: TablePart) -> list[str]:
        """Return the columns whose texts are joined."""
        wanted = self.text_column
        columns = [
            choose_column("text_column", column, part.features, lambda: self._likely_columns(part), name)
            for column in ([wanted] if wanted is None or isinstance(wanted, str) else wanted)
        ]
        for column in columns:
            if kind_of(part.features[column]) not in _TEXT_KINDS:
                raise ValueError(f"dataset.text_column={column!r} holds {kind_of(part.features[column])}, not text")
        if not columns:
            raise ValueError("dataset.text_column=[]: name a column, or null to let it be found")
        return columns

    def _likely_columns(self, part: TablePart) -> list[str]:
        """Narrow the columns of text down: by their names, then to one whose texts are twice as long as any other's."""
        taken = (self.label_column, self.group_column)
        columns = [c for c, f in part.features.items() if kind_of(f) in _TEXT_KINDS and c not in taken]
        columns = [c for c in columns if c.lower() not in LABEL_NAMES] or columns
        columns = [c for c in columns if c.lower() in _TEXT_NAMES] or columns
        if len(columns) < 2:
            return columns
        table = part.read(columns)
        sizes = {c: pc.mean(pc.binary_length(table.column(c).cast(pa.large_binary()))).as_py() or 0.0 for c in columns}
        *_, second, longest = sorted(columns, key=sizes.__getitem__)
        return [longest] if sizes[longest] > 2 * sizes[second] else columns

    def items(self, parts: Sequence[TablePart], sizes: Sequence[int], columns: list[str]) -> Sequence[str]:
        """Read the texts; a missing value is an empty text."""
        texts = []
        for part in parts:
            table = part.read(columns)
            rows = zip(*(_strings(part, table, column) for column in columns), strict=True)
            texts += [" ".join(value for value in row if value) for row in rows]
        return texts


@dataclass(frozen=True, kw_only=True)
class HubTexts(NamedTable[Sequence[str]], Csv):
    """Texts by the name of their set."""


def _strings(part: TablePart, table: pa.Table, column: str) -> list[str | None]:
    values = table.column(column)
    try:
        return values.to_pylist()
    except UnicodeDecodeError as error:
        raw = [value or b"" for value in values.cast(pa.large_binary()).to_pylist()]
        row = next(row for row, value in enumerate(raw) if value.decode(errors="ignore").encode() != value)
        raise ValueError(f"{part.place}, row {row}: column {column!r} holds bytes that are not UTF-8") from error
