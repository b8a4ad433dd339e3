"""How much memory a round needed: peaks of this process and of its device, counted anew from round to round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil
import torch

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
PEAK = "VmHWM:"
RESET_PEAK = "5"
"""What Linux takes as the request to count the peak of resident memory anew."""


def take_peaks() -> dict[str, int]:
    """Return the peaks since the last call, and begin to count anew.

    Returns:
        ``resident_bytes``: most resident memory of this process, mapped files included; where the system keeps no peak
        that can be reset (elsewhere than on Linux), what is resident now. ``device_bytes``: most memory that tensors
        held on the GPU; missing without one.
    """
    peaks = {"resident_bytes": _take_resident_peak()}
    if torch.cuda.is_available():
        peaks["device_bytes"] = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
    return peaks


def largest(peaks: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the largest of each key over ranks.

    >>> largest([{"resident_bytes": 3}, {"resident_bytes": 5}])
    {'resident_bytes': 5}
    """
    merged: dict[str, int] = {}
    for of_rank in peaks:
        for key, value in of_rank.items():
            merged[key] = max(merged.get(key, 0), value)
    return merged


def _take_resident_peak() -> int:
    now = psutil.Process().memory_info().rss
    try:
        kibibytes = next(line.split()[1] for line in STATUS.read_text().splitlines() if line.startswith(PEAK))
        CLEAR.write_text(RESET_PEAK)
    except (OSError, StopIteration):
        return now
    return max(now, 1024 * int(kibibytes))
