"""Starts the runs of a target: one Hydra sweep for all runs that differ in nothing but a product of values."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fedsaf.cli import nearest
from fedsaf.config import ConfigError
from fedsaf.rebuild.sweep import PlannedRun

LAUNCHERS: dict[str, tuple[str, ...]] = {
    "basic": (),
    "joblib": ("hydra/launcher=joblib", "hydra.launcher.n_jobs={jobs}", "fabric.threads=1"),
    "submitit_local": ("hydra/launcher=submitit_local", "hydra.launcher.timeout_min=1440"),
    "submitit_slurm": ("hydra/launcher=submitit_slurm", "hydra.launcher.array_parallelism={jobs}"),
}
"""Words that choose each of Hydra's launchers; their packages are the extra ``sweep``."""


def launcher_words(launcher: str, jobs: int) -> list[str]:
    """Return the words that choose a launcher. Jobs side by side on one machine have one thread each.

    Args:
        launcher: its name.
        jobs: runs side by side.

    Raises:
        ConfigError: unknown launcher, or one whose package or cluster is not there.
    """
    if launcher not in LAUNCHERS:
        raise ConfigError(f"LAUNCHER={launcher} is unknown; {nearest(launcher, LAUNCHERS)}")
    return [word.format(jobs=jobs) for word in LAUNCHERS[launcher]]


def sweeps(runs: Sequence[PlannedRun]) -> list[list[str]]:
    """Return the words of each sweep that together start these runs, and maybe others of the same product.

    Runs on different data are different sweeps, since what stands in for data depends on them.
    """
    blocks: dict[tuple, list[PlannedRun]] = {}
    for run in runs:
        data = tuple(word for word in run.own if word.startswith(("dataset=", "setting=")))
        blocks.setdefault((run.experiment, run.frame, data), []).append(run)
    found = []
    for (_, frame, _), members in blocks.items():
        values: dict[str, dict[str, None]] = {}
        for run in members:
            for word in run.own:
                key, _, value = word.partition("=")
                values.setdefault(key, {})[value] = None
        replaced = {word.partition("=")[0] for word in frame}
        product = [f"{key}={','.join(chosen)}" for key, chosen in values.items() if key not in replaced]
        found.append([*frame, *product])
    return found


def start(words: Sequence[str], launcher: str, train: Path, jobs: int) -> int:
    """Run one sweep in a process of its own; return its exit status. A run that is finished is skipped by it."""
    command = [sys.executable, str(train), "-m", *words, *launcher_words(launcher, jobs)]
    return subprocess.run(command, env=os.environ, check=False).returncode
