"""What a data set is once loaded: one uint8 tensor of images, labels, names. No client is known here.

Dimension letters: n samples, C classes, s image side.
"""

from __future__ import annotations

import hashlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsaf.data.decode import decode_images
from fedsaf.data.labels import encode_labels
from fedsaf.seeding import numpy_generator

log = logging.getLogger(__name__)

ImageItem = bytes | Path | np.ndarray
"""An image before decoding: the bytes of a file, its path, or a uint8 array (h, w) or (h, w, 3)."""


@dataclass(frozen=True, eq=False)
class ImageDataset:
    """A labelled image set in memory, official parts pooled in order.

    Attributes:
        name: what the set is called in records and tables.
        images: (n, channels, s, s) uint8.
        labels: (n,) int64 in 0..C-1.
        class_names: name of each class id.
        groups: (n,) int64, the group (domain, user) of each sample, or None.
        group_names: name of each group id.
        label_mapping: original label to class id where they differ; empty where the ids were used as they came.
        parts: official part to number of samples, in pooled order.
        mean: per channel, of x / 255.
        std: per channel, of x / 255.
        fingerprint: SHA-256 of shape, images, labels and groups.
    """

    name: str
    images: Tensor
    labels: Tensor
    class_names: tuple[str, ...]
    groups: Tensor | None
    group_names: tuple[str, ...]
    label_mapping: dict[str, int]
    parts: dict[str, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    fingerprint: str

    @property
    def num_classes(self) -> int:
        """Number of classes C, those without a sample included."""
        return len(self.class_names)

    @property
    def channels(self) -> int:
        """1 for grey images, 3 for RGB."""
        return self.images.shape[1]

    @property
    def image_size(self) -> int:
        """Side s of the square images, in pixels."""
        return self.images.shape[2]

    def __len__(self) -> int:
        """Number of samples n."""
        return len(self.labels)


@dataclass(frozen=True)
class RawImages:
    """What a source found, nothing decoded and no label mapped yet.

    Attributes:
        name: name of the data set.
        items: n images.
        places: where each image came from, for error messages.
        labels: n labels as they stand in the source.
        class_names: names of the label ids where the source defines them, else None.
        groups: n group labels as they stand in the source, or None.
        parts: official part to number of samples, in the order of ``items``.
    """

    name: str
    items: Sequence[ImageItem | None]
    places: Sequence[str]
    labels: Sequence[Any]
    parts: dict[str, int]
    class_names: tuple[str, ...] | None = None
    groups: Sequence[Any] | None = None
    group_names: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class ImageSource(ABC):
    """Where images come from, and the options that every source has.

    Attributes:
        image_size: side in pixels that every image is resized to; None keeps the native size, which must then be
            square and the same for all.
        mode: ``L``, ``RGB``, or ``auto``: RGB if any image has colour.
        max_samples: size of a class-balanced subset; None keeps everything.
        mean: of x / 255, one number or one per channel.
        std: of x / 255, one number or one per channel.
    """

    image_size: int | None
    mode: str
    max_samples: int | None
    mean: float | Sequence[float]
    std: float | Sequence[float]

    @abstractmethod
    def read(self, seed: int) -> RawImages:
        """Find the images and labels; ``seed`` is for sources that draw them."""

    def load(self, seed: int) -> ImageDataset:
        """Read, map labels, take the subset, decode.

        Args:
            seed: key of the subset draw and of synthetic images; pass the partition seed, not the run seed, so that
                repetitions of an experiment see the same data.

        Raises:
            ValueError: no image, a label missing, an image that cannot be decoded or has another size, or an option
                out of range.
        """
        raw = self.read(seed)
        if not raw.items:
            raise ValueError(f"dataset {raw.name}: no image found")
        labels = encode_labels(raw.labels, raw.class_names, f"dataset {raw.name}: label")
        groups = None
        if raw.groups is not None:
            groups = encode_labels(raw.groups, raw.group_names, f"dataset {raw.name}: group")
        keep = balanced_subset(labels.ids, self.max_samples, numpy_generator(seed, "max_samples"))
        images = decode_images([raw.items[i] for i in keep], [raw.places[i] for i in keep], self.mode, self.image_size)
        if labels.mapping:
            log.info("dataset %s: labels mapped %s", raw.name, labels.mapping)
        ids = labels.ids[keep]
        group_ids = None if groups is None else groups.ids[keep]
        channels = images.shape[1]
        dataset = ImageDataset(
            name=raw.name,
            images=torch.from_numpy(images),
            labels=torch.from_numpy(ids),
            class_names=labels.names,
            groups=None if group_ids is None else torch.from_numpy(group_ids),
            group_names=() if groups is None else groups.names,
            label_mapping=labels.mapping,
            parts=_parts_of_subset(raw.parts, keep),
            mean=_per_channel("dataset.mean", self.mean, channels),
            std=_per_channel("dataset.std", self.std, channels),
            fingerprint=_fingerprint(images, ids, group_ids),
        )
        if min(dataset.std) <= 0:
            raise ValueError(f"dataset.std must be positive, got {self.std}")
        log.info(
            "dataset %s: %d images, %d classes, %d x %d x %d, parts %s",
            *(raw.name, len(dataset), dataset.num_classes, *images.shape[1:], dataset.parts),
        )
        return dataset


def balanced_subset(labels: np.ndarray, max_samples: int | None, rng: np.random.Generator) -> np.ndarray:
    """Choose at most ``max_samples`` positions, as even over the classes as their sizes allow.

    The same generator state gives nested subsets: a larger one holds every smaller one that divides evenly.

    Args:
        labels: (n,) class ids.
        max_samples: how many to keep; None, or n and more, keeps all.
        rng: one permutation per class is drawn, in class order.

    Returns:
        Ascending positions.

    Raises:
        ValueError: fewer than one sample per class is asked for.
    """
    if max_samples is None:
        return np.arange(len(labels))
    classes, counts = np.unique(labels, return_counts=True)
    if max_samples < len(classes):
        raise ValueError(f"dataset.max_samples={max_samples} is less than one for each of the {len(classes)} classes")
    quota, left = np.zeros_like(counts), min(max_samples, len(labels))
    for done, k in enumerate(np.argsort(counts, kind="stable")):
        quota[k] = min(counts[k], left // (len(classes) - done))
        left -= quota[k]
    chosen = [rng.permutation(np.flatnonzero(labels == c))[:q] for c, q in zip(classes, quota, strict=True)]
    return np.sort(np.concatenate(chosen))


def _parts_of_subset(parts: dict[str, int], keep: np.ndarray) -> dict[str, int]:
    edges = np.cumsum([0, *parts.values()])
    return dict(zip(parts, np.diff(np.searchsorted(keep, edges)).tolist(), strict=True))


def _per_channel(name: str, value: float | Sequence[float], channels: int) -> tuple[float, ...]:
    values = (float(value),) * channels if isinstance(value, int | float) else tuple(float(v) for v in value)
    if len(values) != channels:
        raise ValueError(f"{name} has {len(values)} values but the images have {channels} channel(s)")
    return values


def _fingerprint(images: np.ndarray, labels: np.ndarray, groups: np.ndarray | None) -> str:
    digest = hashlib.sha256(np.array(images.shape, "<i8").tobytes())
    digest.update(images)
    for ids in (labels, groups):
        if ids is not None:
            digest.update(ids.astype("<i8").tobytes())
    return digest.hexdigest()
