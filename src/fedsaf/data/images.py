"""Images as a data set: found by a source, decoded once into one uint8 tensor.

Dimension letters: n samples, C classes, s image side.
"""

from __future__ import annotations

import hashlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from fedsaf.core.seeding import derive_seed, numpy_generator
from fedsaf.core.types import ImageFacts
from fedsaf.data.datasets import LabelledDataset, Source, balanced_subset, first_per_class
from fedsaf.data.decode import ImageItem, Undecoded, decoded_blocks, decoded_shape
from fedsaf.data.labels import Annotations
from fedsaf.data.pixels import Pixels, pixels_in_file, pixels_in_memory
from fedsaf.data.sources.tables import file_identity

log = logging.getLogger(__name__)


class ImageItems(ABC):
    """The images of a source, in pooled order."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of images."""

    @abstractmethod
    def rows(self, keep: np.ndarray) -> Iterator[Undecoded]:
        """Yield the images at these ascending positions; every call starts anew."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """Text that differs whenever the images may differ, found without reading whole files."""


@dataclass(frozen=True, eq=False)
class ListedItems(ImageItems):
    """Images that are in memory, or files of their own.

    Attributes:
        items: n arrays, encoded images or paths.
        places: where each came from.
    """

    items: Sequence[ImageItem]
    places: Sequence[str]

    def __len__(self) -> int:
        return len(self.items)

    def rows(self, keep: np.ndarray) -> Iterator[Undecoded]:
        """Yield from the lists."""
        return (Undecoded(self.items[row], self.places[row]) for row in keep)

    @property
    def identity(self) -> str:
        """Contents of what is in memory; path, size and time of change of files."""
        digest = hashlib.sha256()
        for item in self.items:
            digest.update(file_identity(item).encode() if isinstance(item, Path) else bytes(item))
        return digest.hexdigest()


@dataclass(frozen=True)
class RawImages:
    """What a source found, nothing decoded and no label mapped yet.

    Attributes:
        name: name of the data set.
        items: n images.
        labels: n labels as they stand in the source.
        class_names: names of the label ids where the source defines them, else None.
        groups: n group labels as they stand in the source, or None.
        group_names: names of the group ids where the source defines them, else None.
        parts: official part to number of samples, in the order of ``items``.
    """

    name: str
    items: ImageItems
    labels: Sequence[Any]
    parts: dict[str, int]
    class_names: tuple[str, ...] | None = None
    groups: Sequence[Any] | None = None
    group_names: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class ImageSource(Source):
    """Where images come from, and the options that every source has.

    Attributes:
        image_size: side in pixels that every image is resized to; None keeps the native size, which must then be
            square and the same for all.
        mode: ``L``, ``RGB``, or ``auto``: RGB if any image has colour.
        max_samples: size of a class-balanced subset; None keeps everything.
        max_per_class: first samples kept of each class, in each group where there are groups; None keeps everything.
            Taken before ``max_samples``.
        frozen_crop: whether the images of the part ``train``, or all where the source knows no test part, are cropped
            and mirrored at random once, for ever, as the public generators do when they write PACS and DomainNet.
        memory_limit_gib: decoded images that need more are kept in a mapped file of the cache folder, in GiB.
        mean: of x / 255, one number or one per channel.
        std: of x / 255, one number or one per channel.
    """

    image_size: int | None
    mode: str
    max_samples: int | None
    max_per_class: int | None
    frozen_crop: bool
    memory_limit_gib: float
    mean: float | Sequence[float]
    std: float | Sequence[float]

    @abstractmethod
    def read(self, seed: int) -> RawImages:
        """Find the images and labels; ``seed`` is for sources that draw them."""

    def load(self, seed: int, subset: int = 0) -> LabelledDataset:
        """Read, map labels, take the subset, decode.

        Args:
            seed: key of the subset draw, of frozen crops and of synthetic images; pass the partition seed, not the run
                seed, so that repetitions of an experiment see the same data.
            subset: which of the disjoint subsets of ``max_samples`` to take.

        Raises:
            ValueError: no image, a label missing, an image that cannot be decoded or has another size, or an option
                out of range.
        """
        raw = self.read(seed)
        total = len(raw.items)
        if not total:
            raise ValueError(f"dataset {raw.name}: no image found")
        annotations = Annotations.of(raw)
        keep = self._kept(annotations, seed, subset)
        pixels = self._pixels(raw, keep, seed)
        fingerprint = _fingerprint(pixels, annotations.ids(keep))
        dataset = LabelledDataset(
            **annotations.fields(keep),
            inputs=pixels.tensor,
            file=pixels.file,
            subset=self._subset(total) if len(keep) < total else {},
            fingerprint=fingerprint,
            facts=self._facts(pixels, fingerprint),
        )
        log.info(
            "dataset %s: %d %s, %d classes, parts %s%s",
            *(raw.name, len(dataset), dataset.facts, dataset.num_classes, dataset.parts),
            f", a subset: {dataset.subset}" if dataset.subset else "",
        )
        return dataset

    def _kept(self, annotations: Annotations, seed: int, subset: int) -> np.ndarray:
        labels, groups = annotations.labels, annotations.groups
        first = first_per_class(labels.ids, None if groups is None else groups.ids, self.max_per_class)
        rng = numpy_generator(seed, "max_samples")
        return first[balanced_subset(labels.ids[first], self.max_samples, rng, subset)]

    def _subset(self, total: int) -> dict[str, int]:
        limits = {"max_per_class": self.max_per_class, "max_samples": self.max_samples}
        return {name: limit for name, limit in limits.items() if limit is not None} | {"of": total}

    def _pixels(self, raw: RawImages, keep: np.ndarray, seed: int) -> Pixels:
        if not isinstance(self.memory_limit_gib, int | float) or not self.memory_limit_gib >= 0:
            raise ValueError(f"dataset.memory_limit_gib={self.memory_limit_gib} must be 0 or more GiB")
        if self.frozen_crop and self.image_size is None:
            raise ValueError("dataset.frozen_crop=true needs dataset.image_size: crops have no native size")
        last = self._last_cropped(raw)

        def rows() -> Iterator[Undecoded]:
            for row, image in zip(keep, raw.items.rows(keep), strict=True):
                cropped = row < last
                yield replace(image, crop_seed=derive_seed(seed, "frozen_crop", 0, int(row))) if cropped else image

        shape = decoded_shape(rows, self.mode, self.image_size)
        self._statistics(shape[0])  # refused before images are decoded, which may take long
        whole = (len(keep), *shape)

        def blocks() -> Iterator[np.ndarray]:
            return decoded_blocks(rows(), shape, resize=self.image_size is not None)

        if np.prod(whole, dtype=float) <= self.memory_limit_gib * 2**30:
            return pixels_in_memory(blocks, whole)
        key = {
            "source": hashlib.sha256(raw.items.identity.encode()).hexdigest(),
            "rows": hashlib.sha256(keep.astype("<i8").tobytes()).hexdigest(),
            "native": str(self.image_size is None),
            "crops": f"{seed} {last}" if last else "none",
            "decoders": " ".join(f"{name} {version(name)}" for name in ("pillow", "torchvision")),
        }
        return pixels_in_file(blocks, whole, key)

    def _last_cropped(self, raw: RawImages) -> int:
        """Return before which position images get a frozen crop; 0 for nowhere."""
        if not self.frozen_crop:
            return 0
        if "test" not in raw.parts:
            log.info("dataset %s: it has no official test part, so that all images get a frozen crop", raw.name)
            return len(raw.items)
        if next(iter(raw.parts)) != "train":
            raise ValueError(f"dataset.frozen_crop=true needs train as the first of dataset.splits={list(raw.parts)}")
        return raw.parts["train"]

    def _statistics(self, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        mean = _per_channel("dataset.mean", self.mean, channels)
        std = _per_channel("dataset.std", self.std, channels)
        if min(std) <= 0:
            raise ValueError(f"dataset.std must be positive, got {self.std}")
        return mean, std

    def _facts(self, pixels: Pixels, fingerprint: str) -> ImageFacts:
        _, channels, side, _ = pixels.tensor.shape
        mean, std = self._statistics(channels)
        return ImageFacts(channels=channels, size=side, mean=mean, std=std, fingerprint=fingerprint)


def _per_channel(name: str, value: float | Sequence[float], channels: int) -> tuple[float, ...]:
    values = (float(value),) * channels if isinstance(value, int | float) else tuple(float(v) for v in value)
    if len(values) != channels:
        raise ValueError(f"{name} has {len(values)} values but the images have {channels} channel(s)")
    return values


def _fingerprint(pixels: Pixels, ids: Sequence[np.ndarray]) -> str:
    digest = hashlib.sha256(np.array(pixels.tensor.shape, "<i8").tobytes())
    digest.update(pixels.digest.encode())
    for column in ids:
        digest.update(column.astype("<i8").tobytes())
    return digest.hexdigest()
