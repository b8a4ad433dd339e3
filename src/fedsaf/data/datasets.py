"""What a data set is: a `Source` gives `Samples`, and these, fitted to what trains, are a `LabelledDataset`.

No client is known here. Dimension letters: n samples, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fedsaf.core.types import InputFacts
from fedsaf.data.files import mapped_tensor


class Source(ABC):
    """Where a data set comes from: what every choice of ``dataset`` builds.

    A source of one's own is a frozen dataclass whose fields are the keys of its YAML file. It derives from
    `ImageSource` or `TextSource` and says in ``read`` what lies there; or, for inputs of another making, from this
    class, and returns a `LabelledDataset` of tensors.
    """

    @abstractmethod
    def load(self, seed: int, subset: int = 0) -> Samples:
        """Read the samples; data that cannot be used raise a ValueError that names the key or the row.

        Args:
            seed: key of everything that is drawn: the partition seed, so that repetitions see the same data.
            subset: which of the disjoint subsets of ``max_samples`` to take; a source without any refuses all but 0.
        """


@dataclass(frozen=True, eq=False, kw_only=True)
class Annotations:
    """Everything but the content of n samples.

    Attributes:
        name: what the set is called in records and tables.
        labels: (n,) int64 in 0..C-1.
        groups: (n,) int64, the group (domain, user) of each sample, or None.
        label_mapping: original label to class id where they differ; empty where the ids were used as they came.
        parts: official part to number of samples, in pooled order.
        subset: options that left samples out, with their values, and ``of``, how many there were; empty for all.
        files: where the samples were read from; empty for sets that are embedded or generated.
    """

    name: str
    labels: Tensor
    class_names: tuple[str, ...]
    groups: Tensor | None
    group_names: tuple[str, ...]
    label_mapping: dict[str, int]
    parts: dict[str, int]
    subset: dict[str, int] = field(default_factory=dict)
    files: Sequence[Path] = ()

    @property
    def num_classes(self) -> int:
        """Number of classes C, those without a sample included."""
        return len(self.class_names)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def id_bytes(self) -> bytes:
        """Class ids, and group ids if there are any, for fingerprints."""
        return b"".join(ids.numpy().astype("<i8").tobytes() for ids in (self.labels, self.groups) if ids is not None)

    def annotations(self) -> dict[str, Any]:
        """Return these fields by name, for the constructor of another record of the same samples."""
        return {each.name: getattr(self, each.name) for each in fields(Annotations)}


@dataclass(frozen=True)
class OrderedSplit:
    """How samples that overlap with their neighbours are split, whatever ``protocol.split`` says.

    The first ``train_fraction`` of a client's samples train, the next ``gap`` serve nobody, so that no test sample
    overlaps a training sample.
    """

    train_fraction: float
    gap: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Samples(Annotations, ABC):
    """What a partition reads: labels, groups and official parts of n samples, pooled in order.

    Attributes:
        fingerprint: SHA-256 of everything that is read.
        own_split: how each client's samples are split, for sets that cannot be split at random.
        left_out: what the source left out, in words, and how many.
    """

    fingerprint: str
    own_split: OrderedSplit | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)

    @abstractmethod
    def fitted(self, train_rows: np.ndarray) -> LabelledDataset:
        """Return the samples as tensors; whatever is learnt from data is learnt from ``train_rows``, which train."""


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelledDataset(Samples):
    """A labelled set in memory, or mapped into it.

    Attributes:
        inputs: (n, ...): uint8 images (channels, s, s), token ids (L,) or word counts (dim,).
        vocabulary: what ids or counts stand for, in order; empty for images.
        learnt: plain values about what was learnt from the samples, for the record of the partition.
        mapped_file: ``.npy`` file that ``inputs`` maps, read-only; they stay on the CPU then, and other processes open
            the file for themselves. None where inputs are in memory.
    """

    inputs: Tensor
    facts: InputFacts
    vocabulary: tuple[str, ...] = ()
    learnt: Mapping[str, Any] = field(default_factory=dict)
    mapped_file: Path | None = None

    def fitted(self, train_rows: np.ndarray) -> LabelledDataset:
        """Return itself: nothing is learnt."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ if self.mapped_file is None else self.__dict__ | {"inputs": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        file = state["mapped_file"]
        self.__dict__.update(state if file is None else state | {"inputs": mapped_tensor(file)})
