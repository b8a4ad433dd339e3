"""Sources that need no table: the embedded digits, folders of images, synthetic images."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from fedsaf.data.datasets import ImageSource, RawImages
from fedsaf.data.parquet import part_of, pooled_order
from fedsaf.seeding import numpy_generator

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Digits(ImageSource):
    """The 1,797 handwritten digits that ship with scikit-learn: 8 x 8 grey, 10 classes, real and offline."""

    def read(self, seed: int) -> RawImages:
        """Scale the 17 grey levels to 0..255."""
        from sklearn.datasets import load_digits

        digits = load_digits()
        items = list(np.rint(digits.images * (255 / 16)).astype(np.uint8))
        places = [f"digit {i}" for i in range(len(items))]
        names = tuple(map(str, digits.target_names))
        return RawImages("digits", items, places, digits.target.tolist(), {"all": len(items)}, names)


@dataclass(frozen=True, kw_only=True)
class Synthetic(ImageSource):
    """Noisy copies of one random 4 x 4 pattern per class, enlarged: learnable, of any size, for tests.

    Attributes:
        num_samples: n; classes differ by at most one sample.
        num_classes: C.
        channels: 1 or 3.
        noise: standard deviation of the pixel noise, on the scale 0..255.
    """

    num_samples: int
    num_classes: int
    channels: int
    noise: float

    def read(self, seed: int) -> RawImages:
        """Draw patterns and noise from ``seed`` alone."""
        if self.channels not in (1, 3):
            raise ValueError(f"dataset.channels={self.channels} must be 1 (grey) or 3 (RGB)")
        if self.image_size is None:
            raise ValueError("dataset.image_size=null: synthetic images have no native size")
        if not 1 <= self.num_classes <= self.num_samples:
            raise ValueError(f"dataset.num_classes={self.num_classes} must be in 1..num_samples={self.num_samples}")
        rng = numpy_generator(seed, "synthetic")
        labels = rng.permutation(np.arange(self.num_samples) % self.num_classes)
        cells = np.arange(self.image_size) * 4 // self.image_size
        patterns = rng.uniform(64, 192, (self.num_classes, 4, 4, self.channels))[:, cells][:, :, cells]
        items = [
            np.clip(patterns[y] + rng.normal(0, self.noise, patterns.shape[1:]), 0, 255).astype(np.uint8)
            for y in labels
        ]
        if self.channels == 1:
            items = [item[..., 0] for item in items]
        places = [f"synthetic image {i}" for i in range(len(items))]
        names = tuple(map(str, range(self.num_classes)))
        return RawImages("synthetic", items, places, labels.tolist(), {"all": len(items)}, names)


@dataclass(frozen=True, kw_only=True)
class ImageFolder(ImageSource):
    """A user's own images as ``path/<class>/...`` or ``path/<part>/<class>/...``, part being train, val or test.

    Attributes:
        path: the folder.
        splits: official parts to pool, in this order; None takes all.
    """

    path: str | None
    splits: Sequence[str] | None

    def read(self, seed: int) -> RawImages:
        """List image files; files of other kinds and hidden ones are skipped with a count.

        Raises:
            ValueError: no such folder, no image in it, an image outside a class folder, or an unknown part.
        """
        if self.path is None or not Path(self.path).expanduser().is_dir():
            raise ValueError(f"dataset.path={self.path!r} is not a folder; name one with a subfolder per class")
        root = Path(self.path).expanduser()
        found = self._class_files(root)
        parts = Counter(part for part, _, _ in found)
        return RawImages(
            name=root.resolve().name,
            items=[file for _, _, file in found],
            places=[str(file) for _, _, file in found],
            labels=[label for _, label, _ in found],
            parts=dict(parts),
        )

    def _class_files(self, root: Path) -> list[tuple[str, str, Path]]:
        """Return (part, class, file) in pooled order: part, then path."""
        files = sorted(f for f in root.rglob("*") if f.is_file() and not _hidden(f.relative_to(root)))
        readable = {suffix for suffix, kind in Image.registered_extensions().items() if kind in Image.OPEN}
        images = [file for file in files if file.suffix.lower() in readable]
        if len(images) < len(files):
            log.info("dataset.path=%s: %d files that are no images are skipped", root, len(files) - len(images))
        if not images:
            raise ValueError(f"dataset.path={str(root)!r} holds no image (of {len(files)} files)")
        tops = {file.relative_to(root).parts[0] for file in images}
        in_parts = all(part_of(top) and (root / top).is_dir() for top in tops)
        if self.splits is not None and not in_parts:
            raise ValueError(
                f"dataset.splits={list(self.splits)}: {root} has no part folders, only {sorted(tops)[:10]}"
            )
        rows = []
        for file in images:
            folders = file.relative_to(root).parts[:-1]
            if len(folders) <= in_parts:
                raise ValueError(f"labels missing: image {file} lies in no class folder")
            part = part_of(folders[0]) if in_parts else "all"
            rows.append((part, folders[in_parts], file))
        return [row for _, row in pooled_order([(row[0], row) for row in rows], self.splits, str(root))]


def _hidden(relative: Path) -> bool:
    return any(part.startswith((".", "__MACOSX")) for part in relative.parts)
