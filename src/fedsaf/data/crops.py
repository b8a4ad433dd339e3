"""The crop and flip that images of the public generators carry for ever."""

from __future__ import annotations

import math

import numpy as np
from PIL import Image, ImageOps

_AREA = (0.75, 1.0)
_ASPECT = (3 / 4, 4 / 3)
_TRIES = 10


def cropped(image: Image.Image, seed: int) -> Image.Image:
    """Cut out a random rectangle and mirror it with probability 1/2; resizing to a square follows elsewhere.

    The rectangle has 75 to 100 % of the area and an aspect ratio of 3/4 to 4/3, log-uniform; it is drawn again until
    it fits, ten times. An image that no such rectangle fits gives its largest central part of a permitted ratio.

    Args:
        image: of any size.
        seed: equal seeds and sizes, equal crops.
    """
    rng = np.random.default_rng(seed)
    for _ in range(_TRIES):
        area = image.width * image.height * rng.uniform(*_AREA)
        aspect = math.exp(rng.uniform(math.log(_ASPECT[0]), math.log(_ASPECT[1])))
        width, height = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < width <= image.width and 0 < height <= image.height:
            left = int(rng.integers(image.width - width + 1))
            top = int(rng.integers(image.height - height + 1))
            break
    else:
        width = max(1, min(image.width, round(image.height * _ASPECT[1])))
        height = max(1, min(image.height, round(image.width / _ASPECT[0])))
        left, top = (image.width - width) // 2, (image.height - height) // 2
    image = image.crop((left, top, left + width, top + height))
    return ImageOps.mirror(image) if rng.random() < 0.5 else image
