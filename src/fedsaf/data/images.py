"""Images as a data set: found by a source, decoded once into one uint8 tensor.

Dimension letters: n samples, s image side.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np

from fedsaf.core.seeding import derive_seed
from fedsaf.core.types import ImageFacts
from fedsaf.data.datasets import Annotations, LabelledDataset
from fedsaf.data.decode import ImageItem, Undecoded, decoded_blocks, decoded_shape
from fedsaf.data.files import file_identity
from fedsaf.data.pixels import pixels_in_file, pixels_in_memory
from fedsaf.data.raw import RawSamples, RawSource

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class ImageItems:
    """The images of a source in pooled order, found but not held: they are read in order when they are decoded.

    Attributes:
        count: number of images n.
        rows: ascending positions -> the images there, one after the other; every call starts anew.
        identity: gives text that differs whenever the images may differ, found without reading whole files.
    """

    count: int
    rows: Callable[[np.ndarray], Iterator[Undecoded]]
    identity: Callable[[], str]

    def __len__(self) -> int:
        return self.count

    @classmethod
    def of(cls, items: Sequence[ImageItem], name: str = "image") -> ImageItems:
        """Return arrays, encoded images or files; messages call one by its path, else by ``name`` and its number."""

        def rows(keep: np.ndarray) -> Iterator[Undecoded]:
            for row, item in ((row, items[row]) for row in keep):
                yield Undecoded(item, str(item) if isinstance(item, Path) else f"{name} {row}")

        def identity() -> str:
            digest = hashlib.sha256()
            for item in items:
                digest.update(file_identity(item).encode() if isinstance(item, Path) else bytes(item))
            return digest.hexdigest()

        return cls(len(items), rows, identity)


@dataclass(frozen=True, kw_only=True)
class ImageSource(RawSource[ImageItems]):
    """Where images come from: ``read`` finds them, everything else follows; and the options that every source has.

    Attributes:
        image_size: side in pixels that every image is resized to; None keeps the native size, which must then be
            square and the same for all.
        mode: ``L``, ``RGB``, or ``auto``: RGB if any image has colour.
        max_per_class: first samples kept of each class, in each group where there are groups, before ``max_samples``.
        frozen_crop: whether the images of the part ``train``, or all where the source knows no test part, are cropped
            and mirrored at random once, for ever, as the public generators do when they write PACS and DomainNet.
        memory_limit_gib: decoded images that need more are kept in a mapped file of the cache folder, in GiB.
        mean: of x / 255, one number or one per channel; ``std`` likewise, positive.
    """

    image_size: int | None
    mode: str
    max_per_class: int | None
    frozen_crop: bool
    memory_limit_gib: float
    mean: float | Sequence[float]
    std: float | Sequence[float]

    kind = "image"

    def limits(self) -> dict[str, int | None]:
        """Return both limits, in the order in which they apply."""
        return {"max_per_class": self.max_per_class, **super().limits()}

    def check(self) -> None:
        """Refuse options that no images fit."""
        size: object = self.image_size
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
            raise ValueError(
                f"dataset.image_size={size} must be one positive whole number, the side of a square in pixels, or null "
                "for the native size"
            )
        if not isinstance(self.memory_limit_gib, int | float) or not self.memory_limit_gib >= 0:
            raise ValueError(f"dataset.memory_limit_gib={self.memory_limit_gib} must be 0 or more GiB")
        if self.frozen_crop and size is None:
            raise ValueError("dataset.frozen_crop=true needs dataset.image_size: crops have no native size")

    def samples(self, raw: RawSamples[ImageItems], keep: np.ndarray, known: Annotations, seed: int) -> LabelledDataset:
        """Decode; images that are missing, cannot be decoded or have another size are named in a ValueError."""
        last = self._last_cropped(raw)

        def rows() -> Iterator[Undecoded]:
            for row, image in zip(keep, raw.items.rows(keep), strict=True):
                cropped = row < last
                yield replace(image, crop_seed=derive_seed(seed, "frozen_crop", 0, int(row))) if cropped else image

        channels, side, _ = shape = decoded_shape(rows, self.mode, self.image_size)
        mean, std = self._per_channel("mean", channels), self._per_channel("std", channels)
        if min(std) <= 0:
            raise ValueError(f"dataset.std must be positive, got {self.std}")
        whole = (len(keep), *shape)

        def blocks() -> Iterator[np.ndarray]:
            return decoded_blocks(rows(), shape, resize=self.image_size is not None)

        if np.prod(whole, dtype=float) <= self.memory_limit_gib * 2**30:
            pixels = pixels_in_memory(blocks(), whole)
        else:
            key = {
                "source": hashlib.sha256(raw.items.identity().encode()).hexdigest(),
                "rows": hashlib.sha256(keep.astype("<i8").tobytes()).hexdigest(),
                "native": str(self.image_size is None),
                "crops": f"{seed} {last}" if last else "none",
                "decoders": " ".join(f"{name} {version(name)}" for name in ("pillow", "torchvision")),
            }
            pixels = pixels_in_file(blocks, whole, key)
        digest = hashlib.sha256(np.array(whole, "<i8").tobytes() + pixels.digest.encode() + known.id_bytes).hexdigest()
        facts = ImageFacts(channels, side, mean, std, digest)
        return LabelledDataset(
            **known.annotations(), inputs=pixels.tensor, mapped_file=pixels.file, fingerprint=digest, facts=facts
        )

    def _last_cropped(self, raw: RawSamples[ImageItems]) -> int:
        """Return before which position images get a frozen crop; 0 for nowhere."""
        if not self.frozen_crop:
            return 0
        if "test" not in raw.parts:
            log.info("dataset %s: it has no official test part, so that all images get a frozen crop", raw.name)
            return len(raw.items)
        if next(iter(raw.parts)) != "train":
            raise ValueError(f"dataset.frozen_crop=true needs train as the first of dataset.splits={list(raw.parts)}")
        return raw.parts["train"]

    def _per_channel(self, name: str, channels: int) -> tuple[float, ...]:
        value = getattr(self, name)
        values = (float(value),) * channels if isinstance(value, int | float) else tuple(map(float, value))
        if len(values) != channels:
            raise ValueError(f"dataset.{name} has {len(values)} values but the images have {channels} channel(s)")
        return values
