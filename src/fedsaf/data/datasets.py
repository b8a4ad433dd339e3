"""What a data set is, for the partition and for the clients. No client is known here.

Dimension letters: n samples, C classes.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsaf.core.types import InputFacts


@dataclass(frozen=True)
class OrderedSplit:
    """How samples that overlap with their neighbours are split, whatever ``protocol.split`` says.

    Attributes:
        train_fraction: share of a client's samples, from the first on, that trains.
        gap: samples after them that are used by nobody, so that no test sample overlaps a training sample.
    """

    train_fraction: float
    gap: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Samples(ABC):
    """What a partition reads: labels, groups and official parts of n samples, pooled in order.

    Attributes:
        name: what the set is called in records and tables.
        labels: (n,) int64 in 0..C-1.
        class_names: name of each class id.
        groups: (n,) int64, the group (domain, user) of each sample, or None.
        group_names: name of each group id.
        label_mapping: original label to class id where they differ; empty where the ids were used as they came.
        parts: official part to number of samples, in pooled order.
        fingerprint: SHA-256 of everything that is read.
        own_split: how each client's samples are split, for sets that cannot be split at random; None for those that
            can.
        subset: which options left samples out, with their values, and ``of``, how many there were; empty for a whole
            set.
    """

    name: str
    labels: Tensor
    class_names: tuple[str, ...]
    groups: Tensor | None
    group_names: tuple[str, ...]
    label_mapping: dict[str, int]
    parts: dict[str, int]
    fingerprint: str
    own_split: OrderedSplit | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)
    subset: dict[str, int] = field(default_factory=dict)

    @property
    def num_classes(self) -> int:
        """Number of classes C, those without a sample included."""
        return len(self.class_names)

    def __len__(self) -> int:
        """Number of samples n."""
        return len(self.labels)

    @abstractmethod
    def fitted(self, train_rows: np.ndarray) -> LabelledDataset:
        """Return the samples as tensors.

        Args:
            train_rows: positions that train at some client; whatever is learnt from the data is learnt from them.
        """


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelledDataset(Samples):
    """A labelled set in memory, or mapped into it.

    Attributes:
        inputs: (n, ...): uint8 images (channels, s, s), token ids (L,) or word counts (dim,).
        facts: what the inputs are like.
        vocabulary: what ids or counts stand for, in order; empty for images.
        learnt: plain values about what was learnt from the samples, for the record of the partition.
        file: ``.npy`` file that ``inputs`` maps, read-only; they stay on the CPU then, and other processes open the
            file for themselves. None where inputs are in memory.
    """

    inputs: Tensor
    facts: InputFacts
    vocabulary: tuple[str, ...] = ()
    learnt: Mapping[str, Any] = field(default_factory=dict)
    file: Path | None = None

    def fitted(self, train_rows: np.ndarray) -> LabelledDataset:
        """Return itself: nothing is learnt."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ if self.file is None else self.__dict__ | {"inputs": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state if state["file"] is None else state | {"inputs": mapped_tensor(state["file"])})


def mapped_tensor(file: Path) -> Tensor:
    """Map an ``.npy`` file read-only; nothing may write to the tensor."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable")  # which is meant
        return torch.from_numpy(np.load(file, mmap_mode="r"))


def first_per_class(labels: np.ndarray, groups: np.ndarray | None, most: int | None) -> np.ndarray:
    """Choose the first ``most`` positions of each class, of each class and group where there are groups.

    Args:
        labels: (n,) class ids.
        groups: (n,) group ids, or None.
        most: how many to keep; None keeps all.

    Returns:
        Ascending positions.

    Raises:
        ValueError: fewer than one.

    >>> labels, groups = np.array([0, 0, 1, 0]), np.array([0, 1, 1, 1])
    >>> first_per_class(labels, None, 1).tolist(), first_per_class(labels, groups, 1).tolist()
    ([0, 2], [0, 1, 2])
    """
    if most is None:
        return np.arange(len(labels))
    if most < 1:
        raise ValueError(f"dataset.max_per_class={most} must be at least 1, or null for everything")
    cells = labels if groups is None else labels + (labels.max() + 1) * groups
    order = np.argsort(cells, kind="stable")
    _, starts, sizes = np.unique(cells[order], return_index=True, return_counts=True)
    return np.sort(order[np.arange(len(order)) - np.repeat(starts, sizes) < most])


class Source(ABC):
    """Where a data set comes from: what every choice of ``dataset`` builds."""

    @abstractmethod
    def load(self, seed: int, subset: int = 0) -> Samples:
        """Read the samples.

        Args:
            seed: key of everything that is drawn; pass the partition seed, not the run seed, so that repetitions of an
                experiment see the same data.
            subset: which of the disjoint subsets of ``max_samples`` to take.
        """


def balanced_subset(
    labels: np.ndarray, max_samples: int | None, rng: np.random.Generator, subset: int = 0
) -> np.ndarray:
    """Choose at most ``max_samples`` positions, as even over the classes as their sizes allow.

    The same generator state gives nested subsets: a larger one holds every smaller one that divides evenly.

    Args:
        labels: (n,) class ids.
        max_samples: how many to keep; None, or n and more, keeps all.
        rng: one permutation per class is drawn, in class order.
        subset: which of the disjoint subsets of this size; the same generator state gives subsets without a common
            sample.

    Returns:
        Ascending positions.

    Raises:
        ValueError: fewer than one sample per class is asked for, or too few are left for another subset.
    """
    if max_samples is None and subset:
        raise ValueError(f"validation.subset={subset} needs dataset.max_samples: without it all samples are one subset")
    if max_samples is None:
        return np.arange(len(labels))
    classes, counts = np.unique(labels, return_counts=True)
    if max_samples < len(classes):
        raise ValueError(f"dataset.max_samples={max_samples} is less than one for each of the {len(classes)} classes")
    quota, left = np.zeros_like(counts), min(max_samples, len(labels))
    for done, k in enumerate(np.argsort(counts, kind="stable")):
        quota[k] = min(counts[k], left // (len(classes) - done))
        left -= quota[k]
    if (quota * (subset + 1) > counts).any():
        most = int((counts // quota).min())
        raise ValueError(
            f"validation.subset={subset}: only {most} disjoint subsets of dataset.max_samples={max_samples} can be "
            f"taken from {len(labels)} samples, numbered from 0; lower dataset.max_samples"
        )
    skipped = quota * subset
    chosen = [
        rng.permutation(np.flatnonzero(labels == c))[s : s + q] for c, s, q in zip(classes, skipped, quota, strict=True)
    ]
    return np.sort(np.concatenate(chosen))


def parts_of_subset(parts: dict[str, int], keep: np.ndarray) -> dict[str, int]:
    """Return how many of the ascending positions ``keep`` lie in each official part."""
    edges = np.cumsum([0, *parts.values()])
    return dict(zip(parts, np.diff(np.searchsorted(keep, edges)).tolist(), strict=True))
