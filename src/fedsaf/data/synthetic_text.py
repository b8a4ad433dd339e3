"""Random texts whose words tell their class: learnable, of any size, for tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsaf.core.seeding import numpy_generator
from fedsaf.data.texts import RawTexts, TextSource

_OWN_WORDS, _COMMON_WORDS, _LENGTHS = 8, 40, (6, 24)


@dataclass(frozen=True, kw_only=True)
class SyntheticText(TextSource):
    """Texts of common words and words of their class, and of their group where there are groups.

    Attributes:
        num_samples: n; classes and groups differ by at most one sample.
        num_classes: C.
        share: of the words of a text that belong to its class, in (0, 1].
        num_groups: domains or users, each with favourite words; None for none.
    """

    num_samples: int
    num_classes: int
    share: float
    num_groups: int | None

    def read(self, seed: int) -> RawTexts:
        """Draw the texts from ``seed`` alone.

        Raises:
            ValueError: a number out of range.
        """
        self._check()
        rng = numpy_generator(seed, "synthetic_text")
        labels = rng.permutation(np.arange(self.num_samples) % self.num_classes)
        groups = None if self.num_groups is None else rng.permutation(np.arange(self.num_samples) % self.num_groups)
        texts = [self._text(rng, y, 0 if groups is None else groups[i] + 1) for i, y in enumerate(labels)]
        return RawTexts(
            name="synthetic text",
            texts=texts,
            labels=labels.tolist(),
            parts={"all": self.num_samples},
            class_names=tuple(map(str, range(self.num_classes))),
            groups=None if groups is None else groups.tolist(),
            group_names=None if groups is None else tuple(f"group {g}" for g in range(self.num_groups)),
        )

    def _text(self, rng: np.random.Generator, label: int, group: int) -> str:
        """Draw one text; group 0 has no favourite words."""
        length = rng.integers(*_LENGTHS)
        own = rng.random(length) < self.share
        favourite = rng.random(length) < (0.2 if group else 0.0)
        numbers = rng.integers(_COMMON_WORDS, size=length)
        words = np.where(favourite, f"g{group}", "w")
        return " ".join(
            f"c{label}x{number % _OWN_WORDS}" if is_own else f"{word}x{number}"
            for is_own, word, number in zip(own, words, numbers, strict=True)
        )

    def _check(self) -> None:
        if not 1 <= self.num_classes <= self.num_samples:
            raise ValueError(f"dataset.num_classes={self.num_classes} must be in 1..num_samples={self.num_samples}")
        if self.num_groups is not None and not 1 <= self.num_groups <= self.num_samples:
            raise ValueError(f"dataset.num_groups={self.num_groups} must be null or in 1..{self.num_samples}")
        if not 0 < self.share <= 1:
            raise ValueError(f"dataset.share={self.share} must lie in (0, 1]")
