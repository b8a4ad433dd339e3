"""The program as a user starts it: real processes, killed and told to leave from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from tests.federation.harness import ROOT

SMALL = (
    "dataset.max_samples=240",
    "dataset.image_size=16",
    "partition.min_samples=10",
    "model_group.architectures=[simple_cnn,resnet4]",
    "num_clients=4",
    "participation_ratio=0.5",
    "rounds=3",
    "local_epochs=6",
    "feature_dim=16",
    "checkpoint_overhead=1",
    "fabric.accelerator=cpu",
    "fabric.threads=1",
    "logger=none",
)
"""Digits, about half a second per round: long enough to be hit in the middle of a local epoch."""

LIMIT = 240.0
"""Seconds until a process that should have ended counts as hanging."""


STARTED: list[subprocess.Popen] = []
"""Every process since the last test; those still alive are killed when a test ends."""


def start(root: Path, words: Iterable[str], **environment: str) -> subprocess.Popen:
    """Start the program with its run folders under ``root``, without a terminal and without a key."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "src" / "train.py"), *words, f"results_root={root}"],
        cwd=root.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**kept, "OMP_NUM_THREADS": "1", "COLUMNS": "200", "HOME": str(root.parent), **environment},
    )
    STARTED.append(process)
    return process


def end(process: subprocess.Popen, code: int = 0) -> str:
    """Wait for the end; return what was printed. Fail unless the exit code is ``code``."""
    output, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == code, f"exit code {process.returncode}\n{output}"
    return output


def once(condition: Callable[[], bool], process: subprocess.Popen) -> None:
    """Wait until something is true; fail if the process ends before."""
    began = time.monotonic()
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() - began < LIMIT, "waited in vain"
        time.sleep(0.005)


def folders(root: Path) -> list[Path]:
    """Return the run folders, those of lower seeds first."""
    return sorted((path.parent for path in root.glob("*/status.json")), key=lambda p: p.name.rsplit("_seed")[1])


def has_round(root: Path, run: int, round: int) -> Callable[[], bool]:
    """Return whether the ``run``-th folder has recorded ``round``."""

    def recorded() -> bool:
        found = folders(root)
        return len(found) > run and f'"round": {round},' in read(found[run] / "metrics.jsonl")

    return recorded


def saved_round(folder: Path) -> int:
    """Return the round of the last checkpoint, -1 before the first; a record may be one round ahead of it."""
    return json.loads(read(folder / "checkpoint" / "manifest.json") or '{"round": -1}')["round"]


def has_saved(root: Path, run: int, round: int) -> Callable[[], bool]:
    """Return whether the ``run``-th folder has a checkpoint of ``round`` or a later one."""

    def saved() -> bool:
        found = folders(root)
        return len(found) > run and saved_round(found[run]) >= round

    return saved


def read(path: Path) -> str:
    """Return the text of a file; empty if there is none yet."""
    return path.read_text() if path.exists() else ""


def in_the_middle_of_a_round(process: subprocess.Popen) -> None:
    """Wait a little: training takes most of a round, and one has just been closed."""
    time.sleep(0.15)
    assert process.poll() is None


def kill(process: subprocess.Popen) -> None:
    """Kill -9."""
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=LIMIT)


def family(process: subprocess.Popen) -> list[psutil.Process]:
    """Return the processes that this one started, and theirs."""
    return psutil.Process(process.pid).children(recursive=True)
