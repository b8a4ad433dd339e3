"""The one place where files, bytes and arrays become uint8 pixels of one mode and size."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torchvision.io import ImageReadMode, decode_image

ImageItem = bytes | Path | np.ndarray
"""The bytes of an image file, its path, or a uint8 array (h, w) or (h, w, 3)."""

Shape = tuple[int, int, int]
"""Of one decoded image: channels, side, side."""

_CHANNELS = {"L": 1, "RGB": 3}
_GREY_MODES = ("1", "L", "LA", "La", "F")
_BLOCK = 128
_REMEDY = "mend it or leave it out"

_JPEG, _PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
_FAST = {1: (ImageReadMode.GRAY, b"\x08\x00", (1,)), 3: (ImageReadMode.RGB, b"\x08\x02", (1, 3))}
"""By channels: torchvision's mode, and the depth and colour of PNGs and the components of JPEGs that fit it."""


@dataclass(frozen=True, eq=False)
class Undecoded:
    """One image on its way to the decoder.

    Attributes:
        item: the image; None where the source has a gap.
        place: where it came from, for error messages.
        crop_seed: of the crop and flip that the image is given once, for ever; None for none.
    """

    item: ImageItem | None
    place: str
    crop_seed: int | None = None


def decoded_shape(rows: Callable[[], Iterable[Undecoded]], mode: str, image_size: int | None) -> Shape:
    """Return the shape that images will have, from as few of their headers as tell it.

    Args:
        rows: gives the images from the first on, anew with each call; at least one.
        mode: ``L``, ``RGB`` or ``auto``, which is RGB if any image has colour.
        image_size: side to resize to; None keeps the native size.

    Raises:
        ValueError: an unknown mode, or an image that is missing, cannot be read or is not square at its native size.
    """
    if mode not in ("auto", *_CHANNELS):
        raise ValueError(f"dataset.mode={mode!r} is unknown; choose auto, {', '.join(_CHANNELS)}")
    if mode == "auto":
        mode = "L" if all(map(_is_grey, rows())) else "RGB"
    if image_size is None:
        first = next(iter(rows()))
        image = _decode(first, "L")
        image_size = image.height
        _check_size(image, first.place, image_size)
    return _CHANNELS[mode], image_size, image_size


def decoded_blocks(rows: Iterable[Undecoded], shape: Shape, resize: bool) -> Iterator[np.ndarray]:
    """Decode images in order, some threads at a time, holding only a few blocks: uint8 (b, channels, s, s), b <= 128.

    Grey becomes RGB by repetition, palettes are looked up, an alpha channel is dropped, 16-bit grey is scaled by
    255/65535, and the EXIF orientation is applied. What becomes of an image depends on nothing but the image. Other
    sizes are resized (bilinear, anti-aliased, aspect ratio not kept), unless ``resize`` is false.

    Raises:
        ValueError: an image that is missing or cannot be decoded, or has another size; named.
    """
    rows = iter(rows)
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[np.ndarray]] = deque()
        try:
            while block := list(islice(rows, _BLOCK)):
                waiting.append(pool.submit(_decoded_block, block, shape, resize))
                if len(waiting) > 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _decoded_block(block: list[Undecoded], shape: Shape, resize: bool) -> np.ndarray:
    out = np.empty((len(block), *shape), np.uint8)
    for pixels, row in zip(out, block, strict=True):
        if row.crop_seed is None and isinstance(row.item, bytes) and _fill_fast(pixels, row.item):
            continue
        image = _decode(row, "L" if shape[0] == 1 else "RGB")
        if row.crop_seed is not None:
            image = cropped(image, row.crop_seed)
        if not resize:
            _check_size(image, row.place, shape[1])
        elif image.size != shape[1:]:
            image = image.resize(shape[1:], Image.Resampling.BILINEAR)
        pixels[:] = np.asarray(image).reshape(*shape[1:], -1).transpose(2, 0, 1)
    return out


def _fill_fast(pixels: np.ndarray, item: bytes) -> bool:
    """Decode a JPEG or 8-bit PNG of the right size and colour, three times as fast as Pillow; False: not done."""
    mode, png_kind, jpeg_kinds = _FAST[pixels.shape[0]]
    height, width, fits = b"", b"", False
    if item.startswith(_PNG):
        height, width, fits = item[20:24], item[16:20], item[24:26] == png_kind
    elif item.startswith(_JPEG) and (at := _jpeg_frame(item)):
        height, width, fits = item[at + 5 : at + 7], item[at + 7 : at + 9], item[at + 9] in jpeg_kinds
    if not fits or any(int.from_bytes(length) != pixels.shape[1] for length in (height, width)):
        return False
    try:
        encoded = torch.frombuffer(bytearray(item), dtype=torch.uint8)
        pixels[:] = decode_image(encoded, mode, apply_exif_orientation=True).numpy()
    except RuntimeError:
        return False  # Pillow either reads it or names the fault
    return True


def _jpeg_frame(item: bytes) -> int:
    """Return where the frame header of a JPEG starts, which tells height, width and components; 0 if nowhere."""
    at = 2
    while at + 10 <= len(item) and item[at] == 0xFF:
        if 0xC0 <= item[at + 1] <= 0xCF and item[at + 1] not in (0xC4, 0xC8, 0xCC):
            return at
        at += 2 + int.from_bytes(item[at + 2 : at + 4])
    return 0


def _open(row: Undecoded) -> Image.Image:
    item, place = row.item, row.place
    if item is None:
        raise ValueError(f"image missing: {place}")
    if isinstance(item, np.ndarray):
        return Image.fromarray(item)
    try:
        return Image.open(BytesIO(item) if isinstance(item, bytes) else item)
    except UnidentifiedImageError as error:  # its message would show where the bytes lie in memory
        raise ValueError(f"cannot read image {place}: its bytes are of no known image format; {_REMEDY}") from error
    except Exception as error:  # formats differ in what they raise
        raise ValueError(f"cannot read image {place}: {error}; {_REMEDY}") from error


def _decode(row: Undecoded, mode: str) -> Image.Image:
    with _open(row) as image:
        try:
            image.load()
            if "exif" in image.info:
                image = ImageOps.exif_transpose(image)
            return _to_mode(image, mode)
        except Exception as error:  # formats differ in what they raise
            raise ValueError(f"cannot decode image {row.place}: {error}; {_REMEDY}") from error


def _to_mode(image: Image.Image, mode: str) -> Image.Image:
    if image.mode.startswith("I"):
        deep = np.asarray(image).astype(np.int64)
        if deep.min() < 0 or deep.max() > 65535:
            raise ValueError(f"grey values {deep.min()}..{deep.max()} are not 16-bit")
        image = Image.fromarray(((deep * 255 + 32767) // 65535).astype(np.uint8))
    if image.mode == "F":
        raise ValueError("floating-point pixels have no known scale; store them as 8 or 16 bit")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image if image.mode == mode else image.convert(mode)


def _is_grey(row: Undecoded) -> bool:
    with _open(row) as image:
        return image.mode in _GREY_MODES or image.mode.startswith("I")


def _check_size(image: Image.Image, place: str, side: int) -> None:
    if image.size != (side, side):
        raise ValueError(
            f"image {place} is {image.width} x {image.height} pixels where {side} x {side} is needed: "
            "set dataset.image_size=<side in pixels>, and every image is resized to it"
        )


def cropped(image: Image.Image, seed: int) -> Image.Image:
    """Cut out a random rectangle and mirror it with probability 1/2; resizing to a square follows elsewhere.

    The rectangle has 75 to 100 % of the area and an aspect ratio of 3/4 to 4/3, log-uniform; it is drawn again until
    it fits, ten times. An image that no such rectangle fits gives its largest central part of a permitted ratio. Equal
    seeds and sizes give equal crops.
    """
    rng, (narrowest, widest) = np.random.default_rng(seed), (3 / 4, 4 / 3)
    for _ in range(10):
        area = image.width * image.height * rng.uniform(0.75, 1.0)
        aspect = math.exp(rng.uniform(math.log(narrowest), math.log(widest)))
        width, height = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < width <= image.width and 0 < height <= image.height:
            left = int(rng.integers(image.width - width + 1))
            top = int(rng.integers(image.height - height + 1))
            break
    else:
        width = max(1, min(image.width, round(image.height * widest)))
        height = max(1, min(image.height, round(image.width / narrowest)))
        left, top = (image.width - width) // 2, (image.height - height) // 2
    image = image.crop((left, top, left + width, top + height))
    return ImageOps.mirror(image) if rng.random() < 0.5 else image
