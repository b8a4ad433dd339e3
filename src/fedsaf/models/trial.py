"""Trying out networks that nobody described: what they put out, and which images they can read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from timm.layers import PatchEmbed
from torch import nn

LARGEST_TRIED = 512
"""Largest side of an image, in pixels, that the search for a readable size doubles up to."""


@contextmanager
def trial() -> Iterator[None]:
    """Build and call networks without memory or arithmetic, leaving the ambient random stream as it was."""
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        yield


def measured_width(trunk: nn.Module, in_channels: int, image_size: int) -> int:
    """Return W, the features that ``trunk`` puts out for one image, read off a batch of two.

    Raises:
        ValueError: if the output is not one vector per image.
    """
    training, device = trunk.training, next(trunk.parameters()).device
    trunk.eval()  # statistics of normalisation and the random stream stay as they are
    with torch.no_grad():
        shape = tuple(trunk(torch.zeros(2, in_channels, image_size, image_size, device=device)).shape)
    trunk.train(training)
    if len(shape) != 2:
        raise ValueError(f"it puts out {' x '.join(map(str, shape))} for two images, expected one vector for each")
    return shape[1]


def patch_size_of(trunk: nn.Module) -> int:
    """Return what the side of an image must be a multiple of, so that the patches cover it; 1 without patches."""
    embeddings = [module for module in trunk.modules() if isinstance(module, PatchEmbed)]
    return math.lcm(*(embedding.patch_size[0] for embedding in embeddings if not embedding.dynamic_img_pad))


def smallest_size(works: Callable[[int], bool], step: int, native: int | None) -> int | None:
    """Return the smallest side of an image that works.

    Doubles from ``step`` on until one works, then halves the interval; a network that reads only some sizes above its
    smallest may be given a larger answer, but always one that works.

    Args:
        works: whether a side works.
        step: every answer is a multiple of it.
        native: a side to try if no other one works; None for no such.

    Returns:
        The side in pixels, or None if none was found.

    >>> smallest_size(lambda side: side >= 75, 1, None), smallest_size(lambda side: side >= 60, 16, None)
    (75, 64)
    >>> smallest_size(lambda side: side == 240, 1, 240), smallest_size(lambda side: False, 1, 224)
    (240, None)
    """
    count = 1
    while not works(count * step):
        count *= 2
        if count * step > LARGEST_TRIED:
            return native if native is not None and works(native) else None
    fails = count // 2
    while count - fails > 1:
        middle = (fails + count) // 2
        fails, count = (fails, middle) if works(middle * step) else (middle, count)
    return count * step
