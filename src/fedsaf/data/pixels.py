"""Decoded images: in memory, or in a file that is mapped into it and shared by runs and ranks.

Dimension letters: n images, s image side.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from filelock import FileLock

from fedsaf.core.files import remove_leftovers, replacing, write_atomically
from fedsaf.data.files import cache_folder, mapped_tensor

log = logging.getLogger(__name__)


class Pixels(NamedTuple):
    """All images of a set: (n, channels, s, s) uint8, SHA-256 of the bytes, and the file that is mapped read-only."""

    tensor: torch.Tensor
    digest: str
    file: Path | None


def pixels_in_memory(blocks: Iterator[np.ndarray], shape: tuple[int, ...]) -> Pixels:
    """Gather decoded blocks in one tensor of this shape."""
    out, digest, start = np.empty(shape, np.uint8), hashlib.sha256(), 0
    for block in blocks:
        out[start : start + len(block)] = block
        digest.update(block.data)
        start += len(block)
    return Pixels(torch.from_numpy(out), digest.hexdigest(), None)


def pixels_in_file(
    blocks: Callable[[], Iterator[np.ndarray]], shape: tuple[int, ...], key: Mapping[str, str]
) -> Pixels:
    """Map the file of an earlier run with this ``key``, everything that pixels depend on, or decode into a new one.

    The file is there whole or not at all, and written by one process at a time; the others wait for it. Beside it stand
    its key and checksum. A file that is not as it was left is made again: its size is compared always, its checksum if
    the time of its last change differs. One that does not fit on the disk raises a ValueError.
    """
    full_key = {**key, "shape": list(shape)}
    name = hashlib.sha256(json.dumps(full_key, sort_keys=True).encode()).hexdigest()[:32]
    file = cache_folder("pixels") / f"{name}.npy"
    with FileLock(file.with_suffix(".lock")):
        digest = _digest_of_intact(file, shape)
        if digest is None:
            digest = _write(blocks(), shape, file)
            state = file.stat()
            note = {"sha256": digest, "bytes": state.st_size, "changed": state.st_mtime_ns, "key": full_key}
            write_atomically(file.with_suffix(".json"), json.dumps(note, indent=1, sort_keys=True) + "\n")
        else:
            log.info("decoded images are taken from %s", file)
    return Pixels(mapped_tensor(file), digest, file)


def _write(blocks: Iterator[np.ndarray], shape: tuple[int, ...], file: Path) -> str:
    """Write blocks one after the other, so that memory stays free; return the checksum of the pixels."""
    needed, free = int(np.prod(shape)), shutil.disk_usage(file.parent).free
    if needed > free:
        raise ValueError(
            f"{needed / 2**30:.1f} GiB of decoded images do not fit into {file.parent}, where {free / 2**30:.1f} GiB "
            "are free; set FEDSAF_CACHE=<folder with room>, or a larger dataset.memory_limit_gib to keep them in memory"
        )
    log.info("decoding %d images into %s (%.1f GiB); later runs read it", shape[0], file, needed / 2**30)
    remove_leftovers(file.parent, file.name)
    digest = hashlib.sha256()
    with replacing(file) as aside, aside.open("wb") as out:
        np.lib.format.write_array_header_1_0(out, {"descr": "|u1", "fortran_order": False, "shape": shape})
        for block in blocks:
            out.write(block.data)
            digest.update(block.data)
    return digest.hexdigest()


def _digest_of_intact(file: Path, shape: tuple[int, ...]) -> str | None:
    """Return the checksum of the pixels in a file that is as it was written; None if it is not, or is not there."""
    try:
        note = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
        digest, size, changed = note["sha256"], note["bytes"], note["changed"]
        state, pixels = file.stat(), np.load(file, mmap_mode="r")
    except FileNotFoundError:
        return None
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        log.warning("decoded images in %s are damaged (%s) and made again", file, error)
        return None
    intact = state.st_size == size and pixels.shape == shape and pixels.dtype == np.uint8
    if intact and state.st_mtime_ns != changed:
        intact = hashlib.sha256(pixels).hexdigest() == digest
    if not intact:
        log.warning("decoded images in %s are not as they were written and made again", file)
    return digest if intact else None
