"""Labels and groups of any kind to ids 0..C-1, once, with the mapping kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

Label = int | float | str | None
"""A label or group as it stands in a source; None where it is missing."""


class EncodedLabels(NamedTuple):
    """Class ids (n,) int64 in 0..C-1, C names, and original label, as text, to id; empty where nothing was changed."""

    ids: np.ndarray
    names: tuple[str, ...]
    mapping: dict[str, int]


def encode_labels(values: Sequence[Label], names: Sequence[str] | None, what: str) -> EncodedLabels:
    """Map labels to contiguous ids.

    Labels that index ``names`` stay as they are, classes without a sample included. Without names, integers (whole
    floats and booleans count as such) are sorted by value and text alphabetically; integers that are 0..C-1 stay.

    Raises:
        ValueError: a label is missing (None, NaN, -1), outside the names, or of another type; ``what`` is its subject.

    >>> encode_labels([7, 3, 9, 3], None, "label").mapping
    {'3': 0, '7': 1, '9': 2}
    >>> encode_labels(["b", "a"], None, "label").ids.tolist()
    [1, 0]
    """
    missing = [i for i, v in enumerate(values) if v is None or v != v or (v == -1 and not isinstance(v, bool))]
    if missing:
        raise ValueError(
            f"{what}s missing: {len(missing)} of {len(values)} are empty or -1, the first in row {missing[0]}; "
            "leave those samples out or choose another part or column"
        )
    strings = [isinstance(v, str) for v in values]
    if any(strings) and not all(strings):
        raise ValueError(f"{what}s mix text and numbers, such as {values[strings.index(True)]!r}")
    known: Sequence[Any] = values if any(strings) else [_whole(v, what) for v in values]
    distinct = sorted(set(known))
    index = {value: i for i, value in enumerate(distinct)}
    mapping = {} if distinct == list(range(len(distinct))) else {str(v): i for v, i in index.items()}
    if names is not None:
        index, mapping = {i: i for i in range(len(names))} | {name: i for i, name in enumerate(names)}, {}
        strangers = [row for row, value in enumerate(known) if value not in index]
        if strangers:
            raise ValueError(
                f"{what} {known[strangers[0]]!r} is not one of the {len(names)} classes {list(names)[:10]} (0 to "
                f"{len(names) - 1} as numbers); out of range in row {strangers[0]}, the first of {len(strangers)} such"
            )
    ids = np.array([index[v] for v in known], np.int64)
    return EncodedLabels(ids, tuple(map(str, distinct if names is None else names)), mapping)


def encode_groups(values: Sequence[Label], names: Sequence[str] | None, what: str) -> EncodedLabels:
    """Map groups to ids in the alphabetical order of their names, however the source numbers them; see `encode_labels`.

    Groups without a sample are left out.

    >>> encode_groups([0, 2, 2], ["sketch", "photo", "art"], "group").ids.tolist()
    [1, 0, 0]
    """
    encoded = encode_labels(values, names, what)
    return encoded if names is None else encode_labels([names[i] for i in encoded.ids], None, what)


def _whole(value: Label, what: str) -> int:
    try:
        whole = int(value)  # type: ignore[arg-type]  # what a table holds may be anything
    except (TypeError, ValueError, OverflowError):
        whole = None
    if whole is None or whole != value:
        raise ValueError(f"{what} {value!r} is neither a whole number nor text")
    return whole
