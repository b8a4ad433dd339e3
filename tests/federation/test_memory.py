import gc

import numpy as np

from fedsaf.federation.memory import largest, take_peaks
from fedsaf.tracking.recorder import read_rows

MIB = 2**20


def test_what_was_needed_for_a_moment_shows_once():
    gc.collect()  # what earlier tests left would otherwise make room in the middle of this one
    take_peaks()
    before = take_peaks()["resident_bytes"]
    block = np.ones(64 * MIB, dtype=np.uint8)
    del block
    assert take_peaks()["resident_bytes"] >= before + 32 * MIB
    assert take_peaks()["resident_bytes"] < before + 32 * MIB


def test_the_largest_rank_counts():
    assert largest([{"resident_bytes": 3, "device_bytes": 9}, {"resident_bytes": 5}]) == {
        "resident_bytes": 5,
        "device_bytes": 9,
    }
    assert largest([]) == {}


def test_every_round_has_its_peak(straight):
    rows = read_rows(straight / "timing.jsonl")
    assert len(rows) == 4
    assert all(row["resident_bytes"] > MIB for row in rows)
