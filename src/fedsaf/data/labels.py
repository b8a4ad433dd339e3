"""Labels and groups of any kind to ids 0..C-1, once, with the mapping kept; and what is left of them in a subset."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from fedsaf.data.datasets import parts_of_subset

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EncodedLabels:
    """Class ids and what they mean.

    Attributes:
        ids: (n,) int64 in 0..C-1.
        names: C names.
        mapping: original label, as text, to id; empty where nothing was changed.
    """

    ids: np.ndarray
    names: tuple[str, ...]
    mapping: dict[str, int]


def encode_labels(values: Sequence[Any], names: Sequence[str] | None, what: str) -> EncodedLabels:
    """Map labels to contiguous ids.

    Labels that index ``names`` stay as they are, classes without a sample included. Without names, integers are
    sorted by value and text alphabetically; integers that are 0..C-1 already stay, too.

    Args:
        values: n labels: integers (whole floats and booleans count as such) or strings.
        names: names of the ids where the source defines them.
        what: subject of error messages, such as ``dataset x: label``.

    Raises:
        ValueError: a label is missing (None, NaN, -1), outside the names, or of another type.

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
    if not any(strings):
        values = [_whole(v, what) for v in values]
    if names is not None:
        return EncodedLabels(_ids_of_names(values, names, what), tuple(names), {})
    distinct = sorted(set(values))
    index = {value: i for i, value in enumerate(distinct)}
    ids = np.array([index[v] for v in values], np.int64)
    mapping = {} if distinct == list(range(len(distinct))) else {str(v): i for v, i in index.items()}
    return EncodedLabels(ids, tuple(map(str, distinct)), mapping)


def encode_groups(values: Sequence[Any], names: Sequence[str] | None, what: str) -> EncodedLabels:
    """Map groups to contiguous ids in the order of their names, those without a sample left out.

    So domains come in alphabetical order however the source numbers them.

    Args:
        values: see `encode_labels`.
        names: see `encode_labels`.
        what: see `encode_labels`.

    Raises:
        ValueError: see `encode_labels`.

    >>> encode_groups([0, 2, 2], ["sketch", "photo", "art"], "group").ids.tolist()
    [1, 0, 0]
    """
    encoded = encode_labels(values, names, what)
    if names is None:
        return encoded
    return encode_labels([names[i] for i in encoded.ids], None, what)


def _whole(value: Any, what: str) -> int:
    try:
        whole = int(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} {value!r} is neither a whole number nor text") from error
    if whole != value:
        raise ValueError(f"{what} {value!r} is neither a whole number nor text")
    return whole


def _ids_of_names(values: Sequence[int | str], names: Sequence[str], what: str) -> np.ndarray:
    index: dict[int | str, int] = {i: i for i in range(len(names))} | {name: i for i, name in enumerate(names)}
    strangers = [row for row, value in enumerate(values) if value not in index]
    if strangers:
        raise ValueError(
            f"{what} {values[strangers[0]]!r} is not one of the {len(names)} classes {list(names)[:10]} (0 to "
            f"{len(names) - 1} as numbers); out of range in row {strangers[0]}, the first of {len(strangers)} such"
        )
    return np.array([index[v] for v in values], np.int64)


class Annotated(Protocol):
    """What every source finds beside the content of its samples; see `RawImages` and `RawTexts`."""

    name: str
    labels: Sequence[Any]
    parts: dict[str, int]
    class_names: tuple[str, ...] | None
    groups: Sequence[Any] | None
    group_names: tuple[str, ...] | None


@dataclass(frozen=True)
class Annotations:
    """Everything but the content of n samples.

    Attributes:
        name: of the data set.
        labels: class ids and their names.
        groups: group ids and their names, or None.
        parts: official part to number of samples, in order.
    """

    name: str
    labels: EncodedLabels
    groups: EncodedLabels | None
    parts: dict[str, int]

    @classmethod
    def of(cls, raw: Annotated) -> Annotations:
        """Map labels and groups to ids; a mapping that changes labels is announced.

        Raises:
            ValueError: a label or group is missing or unusable.
        """
        labels = encode_labels(raw.labels, raw.class_names, f"dataset {raw.name}: label")
        groups = None
        if raw.groups is not None:
            groups = encode_groups(raw.groups, raw.group_names, f"dataset {raw.name}: group")
        if labels.mapping:
            log.info("dataset %s: labels mapped %s", raw.name, labels.mapping)
        return cls(raw.name, labels, groups, raw.parts)

    def ids(self, keep: np.ndarray) -> list[np.ndarray]:
        """Return the class ids, and the group ids if there are any, at these positions."""
        return [encoded.ids[keep] for encoded in (self.labels, self.groups) if encoded is not None]

    def fields(self, keep: np.ndarray) -> dict[str, Any]:
        """Return the fields of `Samples` that follow for the samples at these ascending positions."""
        groups = self.groups
        return {
            "name": self.name,
            "labels": torch.from_numpy(self.labels.ids[keep]),
            "class_names": self.labels.names,
            "groups": None if groups is None else torch.from_numpy(groups.ids[keep]),
            "group_names": () if groups is None else groups.names,
            "label_mapping": self.labels.mapping,
            "parts": parts_of_subset(self.parts, keep),
        }
