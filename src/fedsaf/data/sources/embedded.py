"""Sets that need no file: the digits that ship with scikit-learn, and random images and texts that can be learnt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsaf.core.seeding import numpy_generator
from fedsaf.data.images import ImageItems, ImageSource
from fedsaf.data.raw import RawSamples
from fedsaf.data.texts import TextSource

_OWN_WORDS, _COMMON_WORDS = 8, 40


@dataclass(frozen=True, kw_only=True)
class Digits(ImageSource):
    """The 1,797 handwritten digits that ship with scikit-learn: 8 x 8 grey, 10 classes, real and offline.

    They have no official test part; the last 360 stand for one, which only ``protocol.split=common`` tells apart.
    """

    def read(self, seed: int) -> RawSamples[ImageItems]:
        """Scale the 17 grey levels to 0..255."""
        from sklearn.datasets import load_digits

        digits = load_digits()
        items = list(np.rint(digits.images * (255 / 16)).astype(np.uint8))
        return RawSamples(
            name="digits",
            items=ImageItems.of(items, "digit"),
            labels=digits.target.tolist(),
            parts={"train": len(items) - 360, "test": 360},
            class_names=tuple(map(str, digits.target_names)),
        )


@dataclass(frozen=True, kw_only=True)
class Synthetic(ImageSource):
    """Noisy copies of one random 4 x 4 pattern per class, enlarged: learnable, of any size, for tests.

    Attributes:
        num_samples: n; classes differ by at most one sample, and so do domains.
        channels: 1 or 3.
        noise: standard deviation of the pixel noise, on the scale 0..255.
        group_names: domains, each with a tint of its own; None for none.
    """

    num_samples: int
    num_classes: int
    channels: int
    noise: float
    group_names: Sequence[str] | None

    def read(self, seed: int) -> RawSamples[ImageItems]:
        """Draw patterns and noise from ``seed`` alone."""
        if self.channels not in (1, 3):
            raise ValueError(f"dataset.channels={self.channels} must be 1 (grey) or 3 (RGB)")
        if self.image_size is None:
            raise ValueError("dataset.image_size=null: synthetic images have no native size")
        names = None if self.group_names is None else tuple(self.group_names)
        if names is not None and not 1 <= len(set(names)) == len(names) <= self.num_samples:
            raise ValueError(f"dataset.group_names={list(names)} must be null or 1..{self.num_samples} different names")
        rng = numpy_generator(seed, "synthetic")
        labels = _labels(rng, self.num_classes, self.num_samples)
        cells = np.arange(self.image_size) * 4 // self.image_size
        patterns = rng.uniform(64, 192, (self.num_classes, 4, 4, self.channels))[:, cells][:, :, cells]
        images = [
            np.clip(patterns[y] + rng.normal(0, self.noise, patterns.shape[1:]), 0, 255).astype(np.uint8)
            for y in labels
        ]
        groups = None
        if names is not None:
            groups = rng.permutation(np.arange(self.num_samples) % len(names))
            tints = rng.uniform(-64, 64, (len(names), self.channels))
            images = [np.clip(i + tints[g], 0, 255).astype(np.uint8) for i, g in zip(images, groups, strict=True)]
        if self.channels == 1:
            images = [image[..., 0] for image in images]
        return RawSamples(
            name="synthetic",
            items=ImageItems.of(images, "synthetic image"),
            labels=labels.tolist(),
            parts={"all": len(images)},
            class_names=tuple(map(str, range(self.num_classes))),
            groups=None if groups is None else groups.tolist(),
            group_names=names,
        )


@dataclass(frozen=True, kw_only=True)
class SyntheticText(TextSource):
    """Texts of common words and words of their class, and of their group where there are groups.

    Attributes:
        num_samples: n; classes and groups differ by at most one sample.
        share: of the words of a text that belong to its class, in (0, 1].
        num_groups: domains or users, each with favourite words; None for none.
    """

    num_samples: int
    num_classes: int
    share: float
    num_groups: int | None

    def read(self, seed: int) -> RawSamples[Sequence[str]]:
        """Draw the texts from ``seed`` alone."""
        if self.num_groups is not None and not 1 <= self.num_groups <= self.num_samples:
            raise ValueError(f"dataset.num_groups={self.num_groups} must be null or in 1..{self.num_samples}")
        if not 0 < self.share <= 1:
            raise ValueError(f"dataset.share={self.share} must lie in (0, 1]")
        rng = numpy_generator(seed, "synthetic_text")
        labels = _labels(rng, self.num_classes, self.num_samples)
        groups = None if self.num_groups is None else rng.permutation(np.arange(self.num_samples) % self.num_groups)
        texts = [self._text(rng, y, 0 if groups is None else groups[i] + 1) for i, y in enumerate(labels)]
        return RawSamples(
            name="synthetic text",
            items=texts,
            labels=labels.tolist(),
            parts={"all": self.num_samples},
            class_names=tuple(map(str, range(self.num_classes))),
            groups=None if groups is None else groups.tolist(),
            group_names=None if self.num_groups is None else tuple(f"group {g}" for g in range(self.num_groups)),
        )

    def _text(self, rng: np.random.Generator, label: int, group: int) -> str:
        """Draw one text of 6 to 23 words; group 0 has no favourite ones."""
        length = rng.integers(6, 24)
        own = rng.random(length) < self.share
        favourite = rng.random(length) < (0.2 if group else 0.0)
        numbers = rng.integers(_COMMON_WORDS, size=length)
        words = np.where(favourite, f"g{group}", "w")
        return " ".join(
            f"c{label}x{number % _OWN_WORDS}" if is_own else f"{word}x{number}"
            for is_own, word, number in zip(own, words, numbers, strict=True)
        )


def _labels(rng: np.random.Generator, num_classes: int, num_samples: int) -> np.ndarray:
    if not 1 <= num_classes <= num_samples:
        raise ValueError(f"dataset.num_classes={num_classes} must be in 1..num_samples={num_samples}")
    return rng.permutation(np.arange(num_samples) % num_classes)
