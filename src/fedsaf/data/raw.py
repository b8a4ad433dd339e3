"""From what a source found to labelled samples: labels to ids, and which samples are kept.

Dimension letters: n samples, C classes.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

import numpy as np
import torch

from fedsaf.core.seeding import numpy_generator
from fedsaf.data.datasets import Annotations, Samples, Source
from fedsaf.data.labels import Label, encode_groups, encode_labels

log = logging.getLogger(__name__)

Items = TypeVar("Items", bound=Sized)


@dataclass(frozen=True, kw_only=True)
class RawSamples(Generic[Items]):
    """What a source found, nothing decoded or learnt and no label mapped yet.

    Attributes:
        name: name of the data set.
        items: n images or texts.
        labels: n labels as they stand in the source: numbers or text.
        parts: official part to number of samples, in the order of ``items``; ``{"all": n}`` where there are none.
        class_names: names of the label ids where the source defines them.
        groups: n group labels (domain, user) as they stand in the source; ``group_names`` as for classes.
        files: where the samples lie, if in files.
    """

    name: str
    items: Items
    labels: Sequence[Label]
    parts: dict[str, int]
    class_names: tuple[str, ...] | None = None
    groups: Sequence[Label] | None = None
    group_names: tuple[str, ...] | None = None
    files: Sequence[Path] = ()


@dataclass(frozen=True, kw_only=True)
class RawSource(Source, Generic[Items]):
    """A source whose samples are found first, and made into numbers when it is known which are kept.

    ``max_samples`` is the size of a class-balanced subset; None keeps everything.
    """

    max_samples: int | None

    kind: ClassVar[str]
    """What a sample is called in messages."""

    @abstractmethod
    def read(self, seed: int) -> RawSamples[Items]:
        """Find samples and labels; ``seed`` is for sources that draw them.

        If there are none, a ValueError names the key and the ways out.
        """

    @abstractmethod
    def check(self) -> None:
        """Raise a ValueError for options that no data fit, before anything is read."""

    @abstractmethod
    def samples(self, raw: RawSamples[Items], keep: np.ndarray, known: Annotations, seed: int) -> Samples:
        """Return the samples at the ascending positions ``keep``, of which all but the content is ``known``."""

    def limits(self) -> dict[str, int | None]:
        """Return the options that leave samples out, by name."""
        return {"max_samples": self.max_samples}

    def load(self, seed: int, subset: int = 0) -> Samples:
        """Read, map labels to ids (a mapping that changes labels is announced), take the subset; see `Source`."""
        self.check()
        raw = self.read(seed)
        if not len(raw.items):
            raise ValueError(f"dataset {raw.name}: no {self.kind} found")
        labels = encode_labels(raw.labels, raw.class_names, f"dataset {raw.name}: label")
        groups = None
        if raw.groups is not None:
            groups = encode_groups(raw.groups, raw.group_names, f"dataset {raw.name}: group")
        if labels.mapping:
            log.info("dataset %s: labels mapped %s", raw.name, labels.mapping)
        limits = {name: limit for name, limit in self.limits().items() if limit is not None}
        first = first_per_class(labels.ids, groups.ids if groups else None, limits.get("max_per_class"))
        rng = numpy_generator(seed, "max_samples")
        keep = first[balanced_subset(labels.ids[first], limits.get("max_samples"), rng, subset)]
        edges = np.searchsorted(keep, np.cumsum([0, *raw.parts.values()]))
        known = Annotations(
            name=raw.name,
            labels=torch.from_numpy(labels.ids[keep]),
            class_names=labels.names,
            groups=torch.from_numpy(groups.ids[keep]) if groups else None,
            group_names=groups.names if groups else (),
            label_mapping=labels.mapping,
            parts=dict(zip(raw.parts, np.diff(edges).tolist(), strict=True)),
            subset=limits | {"of": len(raw.items)} if len(keep) < len(raw.items) else {},
            files=raw.files,
        )
        numbers = (raw.name, len(keep), self.kind, known.num_classes, known.parts, known.subset or "none")
        log.info("dataset %s: %d %ss, %d classes, parts %s, limits %s", *numbers)
        return self.samples(raw, keep, known, seed)


def first_per_class(labels: np.ndarray, groups: np.ndarray | None, most: int | None) -> np.ndarray:
    """Choose the first ``most`` positions of each class, of each class and group where there are groups, ascending.

    None keeps all, fewer than one raises ValueError.

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


def balanced_subset(
    labels: np.ndarray, max_samples: int | None, rng: np.random.Generator, subset: int = 0
) -> np.ndarray:
    """Choose at most ``max_samples`` ascending positions, as even over the classes as their sizes allow; None: all.

    One permutation per class is drawn, in class order. The same generator state gives nested subsets: a larger one
    holds every smaller one that divides evenly; and those of another number ``subset`` have no sample in common.

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
    starts = quota * subset
    chosen = [rng.permutation(np.flatnonzero(labels == c)) for c in classes]
    return np.sort(np.concatenate([own[s : s + q] for own, s, q in zip(chosen, starts, quota, strict=True)]))
