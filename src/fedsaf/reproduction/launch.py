"""Starts the runs of a target: one Hydra sweep for all runs that differ in nothing but a product of values."""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from fedsaf.core.config import ConfigError, nearest
from fedsaf.federation.interrupt import EXIT_AGAIN, SIGNALS
from fedsaf.reproduction.cell import Cell
from fedsaf.reproduction.plan import Plan

LAUNCHERS: dict[str, tuple[str, ...]] = {
    "basic": (),
    "joblib": ("hydra/launcher=joblib", "hydra.launcher.n_jobs={jobs}", "fabric.threads={threads}"),
    "submitit_local": ("hydra/launcher=submitit_local", "hydra.launcher.timeout_min=1440", "fabric.threads={threads}"),
    "submitit_slurm": ("hydra/launcher=submitit_slurm", "hydra.launcher.array_parallelism={jobs}"),
}
"""Words that choose each of Hydra's launchers; their packages are the extra ``sweep``."""
NEEDS: Mapping[str, str] = {
    "joblib": "hydra_plugins.hydra_joblib_launcher",
    "submitit_local": "hydra_plugins.hydra_submitit_launcher",
    "submitit_slurm": "hydra_plugins.hydra_submitit_launcher",
}
"""Package of each launcher that Hydra does not bring."""
STARTS_ALL = ("submitit_local",)
"""Launchers that start all jobs of a sweep at once; they are given sweeps of no more than go side by side."""


def launcher_words(launcher: str, jobs: int) -> list[str]:
    """Return the words that choose a launcher. Jobs side by side on one machine share its cores evenly.

    Args:
        launcher: its name.
        jobs: runs side by side.

    Raises:
        ConfigError: unknown launcher, or one whose package or cluster is not there.
    """
    if launcher not in LAUNCHERS:
        raise ConfigError(f"LAUNCHER={launcher} is unknown; {nearest(launcher, LAUNCHERS)}")
    if jobs < 1:
        raise ConfigError(f"--jobs {jobs}; expected at least 1 run at a time")
    if launcher in NEEDS and not _is_installed(NEEDS[launcher]):
        raise ConfigError(f"LAUNCHER={launcher} needs the extra sweep; pip install -e '.[sweep]' brings it")
    if launcher == "submitit_slurm" and shutil.which("sbatch") is None:
        raise ConfigError(
            "LAUNCHER=submitit_slurm needs Slurm, but there is no sbatch here; start this where jobs are submitted, or "
            "choose LAUNCHER=submitit_local or joblib"
        )
    threads = max(1, (os.cpu_count() or 1) // jobs)
    return [word.format(jobs=jobs, threads=threads) for word in LAUNCHERS[launcher]]


def thread_words(launcher: str, jobs: int) -> list[str]:
    """Return those of `launcher_words` that say how many threads a run has, as whoever measures one needs them."""
    return [word for word in launcher_words(launcher, jobs) if word.startswith("fabric.")]


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package of all plugins
        return False


def sweeps(runs: Sequence[Cell], most: int | None = None) -> list[list[str]]:
    """Return the words of each sweep that together start these runs, and maybe others of the same product.

    Runs on different data are different sweeps, since what stands in for data depends on them.

    Args:
        runs: what is to be started.
        most: how many jobs a sweep may have; None for any number.
    """
    blocks: dict[tuple, list[Cell]] = {}
    for run in runs:
        data = tuple(word for word in run.own if word.startswith(("dataset=", "scenario=")))
        blocks.setdefault((run.experiment, run.frame, data), []).append(run)
    found = []
    for (_, frame, _), members in blocks.items():
        values: dict[str, dict[str, None]] = {}
        for run in members:
            for word in run.own:
                key, _, value = word.partition("=")
                values.setdefault(key, {})[value] = None
        replaced = {word.partition("=")[0] for word in frame}
        product = {key: list(chosen) for key, chosen in values.items() if key not in replaced}
        for part in _halved(product, most):
            found.append([*frame, *(f"{key}={','.join(chosen)}" for key, chosen in part.items())])
    return found


def _halved(product: dict[str, list[str]], most: int | None) -> list[dict[str, list[str]]]:
    """Split a product at its longest axis until no part is too large."""
    if most is None or math.prod(map(len, product.values())) <= most:
        return [product]
    key = max(product, key=lambda key: len(product[key]))
    half = len(product[key]) // 2
    parts = (product | {key: product[key][:half]}, product | {key: product[key][half:]})
    return [smaller for part in parts for smaller in _halved(part, most)]


def fill(plan: Plan, launcher: str, train: Path, jobs: int) -> int:
    """Run what a plan still lacks; return the largest exit status of its sweeps, 0 if there was nothing to do.

    After a sweep that was asked to stop, and says so by `EXIT_AGAIN`, no other is started.
    """
    most = jobs if launcher in STARTS_ALL else None
    worst = 0
    for words in sweeps(plan.missing, most):
        status = start(words, launcher, train, jobs)
        if status == EXIT_AGAIN:
            return status
        worst = max(worst, status)
    return worst


def start(words: Sequence[str], launcher: str, train: Path, jobs: int) -> int:
    """Run one sweep in a process of its own; return its exit status. A run that is finished is skipped by it."""
    command = [sys.executable, str(train), "-m", *words, *launcher_words(launcher, jobs)]
    return attended(command)


def attended(command: Sequence[str]) -> int:
    """Run a command that may need time to save what it has; return its exit status, as a shell counts.

    What asks this process to stop is passed on, and the wait goes on. Ctrl-C is passed on as SIGTERM: a terminal has
    told the command too, and a second SIGINT would end it before it has saved. Runs side by side under joblib are told
    by a terminal alone; otherwise they end at their last checkpoint.
    """
    process: subprocess.Popen | None = None
    asked = False

    def tell(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        if process is not None:
            process.send_signal(signal.SIGTERM if number == signal.SIGINT else number)

    former = {number: signal.signal(number, tell) for number in SIGNALS}
    try:
        process = subprocess.Popen(command)
        if asked:
            process.send_signal(signal.SIGTERM)
        status = process.wait()
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
    if status >= 0:
        return status
    return EXIT_AGAIN if asked else 128 - status
