"""What a result was made with: code, versions, machine. No path and no name of the machine is recorded."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from fedsaf.core.code import git_state

PACKAGES = (
    "torch",
    "torchvision",
    "lightning",
    "hydra-core",
    "omegaconf",
    "torchmetrics",
    "timm",
    "datasets",
    "scikit-learn",
    "scipy",
    "numpy",
    "safetensors",
    "wandb",
)


def environment(threads: int) -> dict[str, Any]:
    """Return commit, versions and hardware as plain values.

    Args:
        threads: intra-op threads of the run; more than one changes the last bits of a sum.

    Returns:
        ``git`` is None outside a repository and without a git binary; a version is None for a missing package; ``gpus``
        are the names torch sees, empty if torch has not been imported.
    """
    return {
        "git": git_state(Path(__file__).parent),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "cpu": {"model": _cpu_model(), "cores": os.cpu_count(), "available": _available_cores()},
        "memory_bytes": psutil.virtual_memory().total,
        "threads": threads,
        "gpus": _gpus(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_model() -> str:
    """Return the processor's name, from the kernel where it tells; empty if nobody does."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _available_cores() -> int | None:
    """Return how many cores this process may use, which a scheduler may have limited."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _gpus() -> list[str]:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
