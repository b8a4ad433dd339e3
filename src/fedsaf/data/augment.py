"""Random crops, flips and rotations of a batch, in one gather on its device.

Dimension letters: B batch, s image side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedsaf.core.types import ImageFacts, InputFacts

PADDINGS = ("zero", "reflect")


@dataclass(frozen=True)
class Augment:
    """What is done to each training image, in this order: shifted crop, horizontal flip, rotation.

    All three compose into one map from output pixels to source pixels, nearest neighbour, so an image is read once and
    stays uint8. Everything off: the batch passes through untouched and nothing is drawn.

    Attributes:
        padding: p, border added on each side before an s x s crop at a random place is cut, in pixels; 0 for no crop.
        padding_mode: what the border shows: ``zero`` (black) or ``reflect``.
        flip: whether to mirror left and right with probability 1/2.
        degrees: bound of the rotation about the centre, drawn from [-degrees, degrees]; corners become black. 0: none.

    Raises:
        ValueError: a negative or unknown value.
    """

    padding: int
    padding_mode: str
    flip: bool
    degrees: float

    def __post_init__(self) -> None:
        if self.padding < 0 or not 0 <= self.degrees <= 180:
            raise ValueError(
                f"augment.padding={self.padding} and augment.degrees={self.degrees}: expected pixels >= 0 and an angle "
                "in [0, 180]"
            )
        if self.padding_mode not in PADDINGS:
            raise ValueError(f"augment.padding_mode={self.padding_mode!r}; choose {' or '.join(PADDINGS)}")

    @property
    def active(self) -> bool:
        """Whether anything is done at all."""
        return bool(self.padding or self.flip or self.degrees)

    def check(self, facts: InputFacts) -> None:
        """Raise a ValueError if the inputs are no images, or too small ones for the reflected border."""
        if not self.active:
            return
        if not isinstance(facts, ImageFacts):
            raise ValueError(f"augment crops, flips and turns images, but the clients have {facts}; take augment=none")
        if self.padding_mode == "reflect" and self.padding >= facts.size:
            raise ValueError(f"augment.padding={self.padding} cannot be reflected in images of side {facts.size}")

    def __call__(self, x: Tensor) -> Tensor:
        """Return the augmented batch, drawn from the ambient CPU stream, so that it is the same on every device.

        ``x`` is (B, channels, s, s) of any type, and left as it is.
        """
        if not self.active:
            return x
        num_images, channels, side = len(x), x.shape[1], x.shape[2]
        rows, columns, inside = self._source(num_images, side)
        places = (rows * side + columns).flatten(1).to(x.device)
        pixels = x.flatten(2).gather(2, places[:, None].expand(-1, channels, -1)).view_as(x)
        return pixels.where(inside[:, None].to(x.device), torch.zeros((), dtype=x.dtype, device=x.device))

    def _source(self, num_images: int, side: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return for each output pixel, all (B, s, s): source row, source column, and whether it lies in the image."""
        axis = torch.arange(side)
        rows, columns = axis[None, :, None], axis[None, None, :]
        inside = torch.ones(num_images, side, side, dtype=torch.bool)
        if self.degrees:
            turns = 2 * torch.rand(num_images, 1, 1, dtype=torch.float64) - 1
            rows, columns = _rotated(side, turns * math.radians(self.degrees))
            inside = (rows >= 0) & (rows < side) & (columns >= 0) & (columns < side)
        if self.flip:
            mirrored = torch.rand(num_images, 1, 1) < 0.5
            columns = torch.where(mirrored, side - 1 - columns, columns)
        if self.padding:
            shifts = torch.randint(-self.padding, self.padding + 1, (2, num_images, 1, 1))
            rows, columns = rows + shifts[0], columns + shifts[1]
            if self.padding_mode == "reflect":
                rows, columns = _reflected(rows, side), _reflected(columns, side)
        inside = inside & (rows >= 0) & (rows < side) & (columns >= 0) & (columns < side)
        shape = (num_images, side, side)
        return rows.clamp(0, side - 1).expand(shape), columns.clamp(0, side - 1).expand(shape), inside


def _rotated(side: int, angles: Tensor) -> tuple[Tensor, Tensor]:
    """Return where each pixel of the rotated images comes from, rounded; (B, s, s) row and column, maybe outside."""
    centre, cosine, sine = (side - 1) / 2, angles.cos(), angles.sin()
    axis = torch.arange(side, dtype=torch.float64) - centre
    down, right = axis[None, :, None], axis[None, None, :]
    rows = (cosine * down + sine * right + centre).round().long()
    columns = (cosine * right - sine * down + centre).round().long()
    return rows, columns


def _reflected(index: Tensor, side: int) -> Tensor:
    """Fold indices up to s - 1 beyond either edge back inside, the edge itself not repeated."""
    index = index.abs()
    return torch.where(index >= side, 2 * (side - 1) - index, index)
