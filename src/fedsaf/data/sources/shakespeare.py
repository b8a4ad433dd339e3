"""Shakespeare by role: the next character of what one role says in one play (LEAF)."""

from __future__ import annotations

import hashlib
import logging
import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.lib.stride_tricks import sliding_window_view

from fedsaf.core.types import TokenFacts
from fedsaf.data.datasets import LabelledDataset, OrderedSplit, Source
from fedsaf.data.sources.named import local_place, named_parts

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


class Windows(NamedTuple):
    """Windows of all roles, role after role, in the order of the text.

    ``inputs`` (n, 80) and ``targets`` (n,), the next characters, are uint8 ids; ``roles`` (n,) ascending positions in
    ``names``, the roles with a window in alphabetical order; ``left_out`` says what was left out and how often.
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
        """Read speeches and cut them, or read ready windows. Nothing is drawn, and all windows are taken.

        Raises:
            ValueError: no place has it, a column is missing, no role has a window, ready windows are not in the
                order of the text, or another subset is asked for.
        """
        if subset:
            raise ValueError(f"validation.subset={subset}: {self.name} has no subsets, since all windows are taken")
        place = local_place(self.name, self.path)
        speeches = place / "speeches.parquet" if place else None
        path = str(speeches) if speeches and speeches.is_file() else self.path
        parts = named_parts(self.name, self.hub_id, path, None)
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
        counted = (self.name, len(windows.targets), len(windows.names), windows.left_out)
        log.info("dataset %s: %d windows of %d roles; left out: %s", *counted)
        digest = hashlib.sha256()
        for array in (windows.inputs, windows.targets, windows.roles.astype("<i8")):
            digest.update(array.data)
        return LabelledDataset(
            name=self.name,
            inputs=torch.from_numpy(windows.inputs),
            labels=torch.from_numpy(windows.targets.astype(np.int64)),
            class_names=tuple({"\n": "\\n", " ": "space"}.get(character, character) for character in ALPHABET),
            groups=torch.from_numpy(windows.roles.astype(np.int64)),
            group_names=windows.names,
            label_mapping={},
            parts={"all": len(windows.targets)},
            files=[file for part in parts for file in part.files],
            fingerprint=digest.hexdigest(),
            own_split=OrderedSplit(train_fraction=0.9, gap=LENGTH - 1),
            facts=TokenFacts(LENGTH, len(ALPHABET)),
            vocabulary=tuple(ALPHABET),
            left_out=windows.left_out,
        )

    def _cut_speeches(self, table: pa.Table) -> Windows:
        """Join the speeches of each role and cut them."""
        spoken: dict[str, list[str]] = {}
        for role, text in zip(*(table.column(column).to_pylist() for column in (ROLE, TEXT)), strict=True):
            spoken.setdefault(role, []).append(text.replace("\r\n", "\n"))
        joined = {role: "\n".join(speeches) for role, speeches in sorted(spoken.items())}
        long = {role: text for role, text in joined.items() if text.count("\n") + 1 >= self.min_lines}
        # Deviation: runs of two spaces become one, too, as LEAF's published expression does, not only longer ones
        plain = [re.sub(" {2,}", " ", text.replace("\n", " ")) for text in long.values()]
        inputs, targets, counts, strange = cut_windows(list(map(character_ids, plain)))
        names = tuple(role for role, count in zip(long, counts, strict=True) if count)
        left_out = {
            f"roles with fewer than {self.min_lines} lines": len(joined) - len(long),
            SHORT: len(long) - len(names),
            STRANGE: strange,
        }
        return Windows(inputs, targets, np.repeat(np.arange(len(names)), counts[counts > 0]), names, left_out)


def _ready_windows(table: pa.Table) -> Windows:
    """Sort windows by role, in the order in which they stand within each.

    A window or next character of another length raises ValueError, and windows of which most do not end in the next
    character of the window before.
    """
    for column, length in ((WINDOW, LENGTH), (NEXT, 1)):
        lengths = pc.utf8_length(table.column(column)).to_numpy()
        if (lengths != length).any():
            row = int(np.argmax(lengths != length))
            raise ValueError(f"column {column!r}, row {row}: {lengths[row]} characters instead of {length}")
    inputs, targets = _ids(table.column(WINDOW), LENGTH), _ids(table.column(NEXT), 1)[:, 0]
    found = table.column(ROLE).cast(pa.string()).combine_chunks().dictionary_encode()
    names, rank = np.unique(np.array(found.dictionary.to_pylist(), object), return_inverse=True)
    roles = rank[found.indices.to_numpy()]
    keep = (targets != STRANGER) & (inputs.max(1) != STRANGER)
    order = np.argsort(roles, kind="stable")
    order = order[keep[order]]
    inputs, targets, roles = inputs[order], targets[order], roles[order]
    same = roles[1:] == roles[:-1]
    follows = (inputs[1:, -1] == targets[:-1])[same]
    if len(follows) and follows.mean() < 0.5:
        raise ValueError(
            "the windows of a role must stand in the order of the text, one at every position: otherwise training and "
            f"test samples would overlap; only {follows.mean():.0%} follow the window before"
        )
    kept, roles = np.unique(roles, return_inverse=True)
    left_out = {SHORT: len(names) - len(kept), STRANGE: int((~keep).sum())}
    return Windows(inputs, targets, roles, tuple(names[kept].tolist()), left_out)


def _ids(column: pa.ChunkedArray, width: int) -> np.ndarray:
    """Return (n, width) ids of texts of ``width`` characters."""
    batches = (batch.column(0).to_pylist() for batch in pa.table({"texts": column}).to_batches(65_536))
    ids = [character_ids("".join(texts)).reshape(-1, width) for texts in batches]
    return np.concatenate([np.empty((0, width), np.uint8), *ids])


def character_ids(text: str) -> np.ndarray:
    r"""Return (m,) uint8 ids.

    >>> character_ids("a\n~\u00e9").tolist()
    [53, 0, 255, 255]
    """
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return _IDS[np.minimum(points, STRANGER)]


def cut_windows(texts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Cut every text, given by the ids of its characters, at every position; fewer than 81 give no window.

    Returns (n, 80) uint8 windows and (n,) uint8 next characters, text after text, the number of windows of each text,
    and how many were left out because of a stranger, as their next character too.
    """
    kept = [_windows_of(text) for text in texts]
    counts = np.array(list(map(len, kept)), np.int64)
    kept.append(_windows_of(np.empty(0, np.uint8)))  # so that there is an array where there is no text
    inputs, targets = (np.concatenate([own[:, cut] for own in kept]) for cut in (slice(LENGTH), LENGTH))
    whole = sum(max(len(text) - LENGTH, 0) for text in texts)
    return inputs, targets, counts, whole - int(counts.sum())


def _windows_of(text: np.ndarray) -> np.ndarray:
    """Return the (k, 81) windows of a text without a stranger, each with its next character."""
    if len(text) <= LENGTH:
        return np.empty((0, LENGTH + 1), np.uint8)
    windows = sliding_window_view(text, LENGTH + 1)
    return windows[(windows != STRANGER).all(1)]
