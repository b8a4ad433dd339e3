"""Shakespeare by role: the next character of what one role says in one play (LEAF)."""

from __future__ import annotations

import hashlib
import logging
import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.lib.stride_tricks import sliding_window_view

from fedsaf.core.types import TokenFacts
from fedsaf.data.datasets import LabelledDataset, OrderedSplit, Source
from fedsaf.data.sources.named import named_parts
from fedsaf.data.sources.tables import TablePart
from fedsaf.data.sources.text_files import text_parts

log = logging.getLogger(__name__)

LENGTH = 80
"""Characters per window."""

ALPHABET = "\n !\"&'(),-.0123456789:;>?" + string.ascii_uppercase + "[]" + string.ascii_lowercase + "}"
"""LEAF's 80 characters; the id of a character is its position."""

STRANGER = 255
"""Id of every character outside the alphabet."""

_IDS = np.full(256, STRANGER, np.uint8)
_IDS[[ord(character) for character in ALPHABET]] = np.arange(len(ALPHABET))


ROLE, TEXT, WINDOW, NEXT = "character_id", "text", "x", "y"
"""Columns: of speeches the first two, of ready windows the first and the last two."""

SHORT, STRANGE = "roles without a window", "windows with a character outside the alphabet"
"""Reasons to leave something out."""

_SHOWN = {"\n": "\\n", " ": "space"}


@dataclass(frozen=True)
class Windows:
    """Windows of all roles, role after role, in the order of the text.

    Attributes:
        inputs: (n, 80) uint8 ids.
        targets: (n,) uint8 ids of the next character.
        roles: (n,) ascending positions in ``names``.
        names: roles with a window, in alphabetical order.
        left_out: what was left out and how often.
    """

    inputs: np.ndarray
    targets: np.ndarray
    roles: np.ndarray
    names: tuple[str, ...]
    left_out: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class Shakespeare(Source):
    """All windows of all roles, from speeches or from a table of ready windows.

    The place is ``path``, else ``$DATA_ROOT/<name>``, else the hub's cache, else the hub; a folder that holds
    ``speeches.parquet`` is read as speeches. Windows overlap, so each role's samples are split by their order: the
    first 90 % train, the next 79 are used by nobody, the others test.

    Attributes:
        name: name in records, and of the folder below ``$DATA_ROOT``.
        hub_id: ``owner/name`` on the hub, a table of ready windows.
        path: file or folder, taken before anything else.
        min_lines: roles with fewer printed lines are left out; not used for ready windows.
    """

    name: str
    hub_id: str | None
    path: str | None
    min_lines: int

    def load(self, seed: int, subset: int = 0) -> LabelledDataset:
        """Read speeches and cut them, or read ready windows.

        Args:
            seed: not used; nothing is drawn.
            subset: 0, since all windows are taken.

        Raises:
            ValueError: no place has it, a column is missing, no role has a window, ready windows are not in the
                order of the text, or another subset is asked for.
        """
        if subset:
            raise ValueError(f"validation.subset={subset}: {self.name} has no subsets, since all windows are taken")
        parts = named_parts(self.name, self.hub_id, self.path, None, _local_parts)
        kinds = {(ROLE, WINDOW, NEXT): _ready_windows, (ROLE, TEXT): self._cut_speeches}
        columns = next((c for c in kinds if set(c) <= set(parts[0].features)), None)
        if columns is None or any(set(columns) - set(part.features) for part in parts):
            raise ValueError(
                f"dataset {self.name} needs the columns {ROLE}, {TEXT} (speeches) or {ROLE}, {WINDOW}, {NEXT} "
                f"(windows of {LENGTH} characters and the next one); there are "
                + "; ".join(f"{part.place}: {', '.join(part.features)}" for part in parts)
            )
        table = pa.concat_tables([part.read(list(columns)) for part in parts], promote_options="permissive")
        missing = sum(table.column(column).null_count for column in columns)
        if missing:
            raise ValueError(f"dataset {self.name}: {missing} values of {', '.join(columns)} are missing")
        windows = kinds[columns](table)
        if not len(windows.targets):
            raise ValueError(f"dataset {self.name}: no role has the {LENGTH + 1} characters of one window")
        log.info(
            "dataset %s: %d windows of %d roles; left out: %s",
            *(self.name, len(windows.targets), len(windows.names), windows.left_out),
        )
        return self._dataset(windows)

    def _cut_speeches(self, table: pa.Table) -> Windows:
        """Join the speeches of each role and cut them."""
        spoken: dict[str, list[str]] = {}
        for role, text in zip(*(table.column(column).to_pylist() for column in (ROLE, TEXT)), strict=True):
            spoken.setdefault(role, []).append(text.replace("\r\n", "\n"))
        joined = {role: "\n".join(speeches) for role, speeches in sorted(spoken.items())}
        long = {role: text for role, text in joined.items() if text.count("\n") + 1 >= self.min_lines}
        inputs, targets, counts, strange = cut_windows([character_ids(_plain(text)) for text in long.values()])
        names = tuple(role for role, count in zip(long, counts, strict=True) if count)
        return Windows(
            inputs,
            targets,
            np.repeat(np.arange(len(names)), counts[counts > 0]),
            names,
            {
                f"roles with fewer than {self.min_lines} lines": len(joined) - len(long),
                SHORT: len(long) - len(names),
                STRANGE: strange,
            },
        )

    def _dataset(self, windows: Windows) -> LabelledDataset:
        digest = hashlib.sha256()
        for array in (windows.inputs, windows.targets, windows.roles.astype("<i8")):
            digest.update(array)
        return LabelledDataset(
            name=self.name,
            inputs=torch.from_numpy(windows.inputs),
            labels=torch.from_numpy(windows.targets.astype(np.int64)),
            class_names=tuple(_SHOWN.get(character, character) for character in ALPHABET),
            groups=torch.from_numpy(windows.roles.astype(np.int64)),
            group_names=windows.names,
            label_mapping={},
            parts={"all": len(windows.targets)},
            fingerprint=digest.hexdigest(),
            own_split=OrderedSplit(train_fraction=0.9, gap=LENGTH - 1),
            facts=TokenFacts(LENGTH, len(ALPHABET)),
            vocabulary=tuple(ALPHABET),
            left_out=windows.left_out,
        )


def _local_parts(path: Path, splits: Sequence[str] | None) -> list[TablePart]:
    speeches = path / "speeches.parquet"
    return text_parts(speeches if speeches.is_file() else path, splits)


def _plain(text: str) -> str:
    """Turn line breaks into spaces and runs of spaces into one.

    Deviation: runs of two spaces, too, as LEAF's published expression does, not of three and more alone.
    """
    return re.sub(" {2,}", " ", text.replace("\n", " "))


def _ready_windows(table: pa.Table) -> Windows:
    """Sort windows by role, in the order in which they stand within each.

    Raises:
        ValueError: a window or next character of another length, or windows that do not follow each other.
    """
    for column, length in ((WINDOW, LENGTH), (NEXT, 1)):
        lengths = pc.utf8_length(table.column(column)).to_numpy()
        if (lengths != length).any():
            row = int(np.argmax(lengths != length))
            raise ValueError(f"column {column!r}, row {row}: {lengths[row]} characters instead of {length}")
    inputs, targets = _ids(table.column(WINDOW), LENGTH), _ids(table.column(NEXT), 1)[:, 0]
    found = table.column(ROLE).cast(pa.string()).combine_chunks().dictionary_encode()
    names = np.array(found.dictionary.to_pylist(), object)
    rank = np.argsort(np.argsort(names))
    roles = rank[found.indices.to_numpy()]
    keep = (targets != STRANGER) & (inputs.max(1) != STRANGER)
    order = np.argsort(roles, kind="stable")
    order = order[keep[order]]
    inputs, targets, roles = inputs[order], targets[order], roles[order]
    _check_order(inputs, targets, roles)
    kept, roles = np.unique(roles, return_inverse=True)
    left_out = {SHORT: len(names) - len(kept), STRANGE: int((~keep).sum())}
    return Windows(inputs, targets, roles, tuple(np.sort(names)[kept].tolist()), left_out)


def _check_order(inputs: np.ndarray, targets: np.ndarray, roles: np.ndarray) -> None:
    """Raise unless most windows end in the next character of the window before, as they do in a text's order."""
    same = roles[1:] == roles[:-1]
    follows = inputs[1:, -1] == targets[:-1]
    if same.any() and follows[same].mean() < 0.5:
        raise ValueError(
            "the windows of a role must stand in the order of the text, one at every position: otherwise training and "
            f"test samples would overlap; only {follows[same].mean():.0%} follow the window before"
        )


def _ids(column: pa.ChunkedArray, width: int) -> np.ndarray:
    """Return (n, width) ids of texts of ``width`` characters; one with a character beyond ASCII becomes strangers."""
    chunks = []
    for chunk in column.cast(pa.large_string()).chunks:
        ascii_only = pc.equal(pc.binary_length(chunk), width)
        ids = np.full((len(chunk), width), STRANGER, np.uint8)
        plain = chunk.filter(ascii_only)
        _, offsets, raw = plain.buffers()
        start = np.frombuffer(offsets, np.int64)[plain.offset] if len(plain) else 0
        raw = np.frombuffer(raw, np.uint8, len(plain) * width, start) if len(plain) else np.empty(0, np.uint8)
        ids[ascii_only.to_numpy(zero_copy_only=False)] = byte_ids(raw.reshape(-1, width))
        chunks.append(ids)
    return np.concatenate(chunks)


def character_ids(text: str) -> np.ndarray:
    r"""Return (m,) uint8 ids.

    >>> character_ids("a\n~\u00e9").tolist()
    [53, 0, 255, 255]
    """
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return _IDS[np.minimum(points, 255)]


def byte_ids(raw: np.ndarray) -> np.ndarray:
    """Return the ids of ASCII bytes, in the shape of ``raw``; all other bytes are strangers."""
    return _IDS[raw]


def cut_windows(texts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Cut every text at every position; a window with a stranger, as its next character too, is left out.

    Args:
        texts: ids of the characters of each text; fewer than 81 give no window.

    Returns:
        (n, 80) uint8 windows and (n,) uint8 next characters, text after text, the number of windows of each text, and
        how many windows were left out.
    """
    kept = [_without_strangers(text) for text in texts]
    counts = np.array([int(keep.sum()) for keep in kept], np.int64)
    inputs, targets = np.empty((counts.sum(), LENGTH), np.uint8), np.empty(counts.sum(), np.uint8)
    stop = 0
    for text, keep, count in zip(texts, kept, counts, strict=True):
        if count:
            start, stop = stop, stop + count
            inputs[start:stop] = sliding_window_view(text, LENGTH)[:-1][keep]
            targets[start:stop] = text[LENGTH:][keep]
    return inputs, targets, counts, sum(map(len, kept)) - int(counts.sum())


def _without_strangers(text: np.ndarray) -> np.ndarray:
    """Return for each window of a text whether it and the next character lie in the alphabet."""
    before = np.concatenate([[0], np.cumsum(text == STRANGER)])
    return before[LENGTH + 1 :] == before[: -LENGTH - 1]
