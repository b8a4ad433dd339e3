"""Next-character samples: windows of a text as ids of a fixed alphabet; pure NumPy.

A sample is 80 consecutive characters, its label the next one; windows lie at every position (LEAF). Dimension letters:
n windows, m characters.
"""

from __future__ import annotations

import string
from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

LENGTH = 80
"""Characters per window."""

ALPHABET = "\n !\"&'(),-.0123456789:;>?" + string.ascii_uppercase + "[]" + string.ascii_lowercase + "}"
"""LEAF's 80 characters; the id of a character is its position."""

STRANGER = 255
"""Id of every character outside the alphabet."""

_IDS = np.full(256, STRANGER, np.uint8)
_IDS[[ord(character) for character in ALPHABET]] = np.arange(len(ALPHABET))


def character_ids(text: str) -> np.ndarray:
    r"""Return (m,) uint8 ids.

    >>> character_ids("a\n~\u00e9").tolist()
    [53, 0, 255, 255]
    """
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return _IDS[np.minimum(points, 255)]


def byte_ids(raw: np.ndarray) -> np.ndarray:
    """Return the ids of ASCII bytes, in the shape of ``raw``; all other bytes are strangers."""
    return _IDS[raw]


def cut_windows(texts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Cut every text at every position; a window with a stranger, as its next character too, is left out.

    Args:
        texts: ids of the characters of each text; fewer than 81 give no window.

    Returns:
        (n, 80) uint8 windows and (n,) uint8 next characters, text after text, the number of windows of each text, and
        how many windows were left out.
    """
    kept = [_without_strangers(text) for text in texts]
    counts = np.array([int(keep.sum()) for keep in kept], np.int64)
    inputs, targets = np.empty((counts.sum(), LENGTH), np.uint8), np.empty(counts.sum(), np.uint8)
    stop = 0
    for text, keep, count in zip(texts, kept, counts, strict=True):
        if count:
            start, stop = stop, stop + count
            inputs[start:stop] = sliding_window_view(text, LENGTH)[:-1][keep]
            targets[start:stop] = text[LENGTH:][keep]
    return inputs, targets, counts, sum(map(len, kept)) - int(counts.sum())


def _without_strangers(text: np.ndarray) -> np.ndarray:
    """Return for each window of a text whether it and the next character lie in the alphabet."""
    before = np.concatenate([[0], np.cumsum(text == STRANGER)])
    return before[LENGTH + 1 :] == before[: -LENGTH - 1]
