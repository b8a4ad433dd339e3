"""What a result was made with: code, versions, machine. No path and no name of the machine is recorded."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

import psutil

from fedsaf.core.code import git_state, version_of

PACKAGES = "torch torchvision lightning hydra-core omegaconf torchmetrics timm datasets scikit-learn scipy numpy"
PACKAGES += " safetensors wandb"


def environment(threads: int) -> dict[str, Any]:
    """Return commit, versions and hardware as plain values.

    ``threads`` are intra-op threads of the run; more than one changes the last bits of a sum. ``git`` is None outside a
    repository and without a git binary; ``gpus`` are the names torch sees, empty if torch has not been imported.
    """
    torch = sys.modules.get("torch")
    gpus = range(torch.cuda.device_count()) if torch and torch.cuda.is_available() else ()
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "git": git_state(Path(__file__).parent),
        "python": platform.python_version(),
        "packages": {name: version_of(name) for name in PACKAGES.split()},
        "platform": platform.platform(),
        "cpu": {"model": _cpu_model(), "cores": os.cpu_count(), "available": available},
        "memory_bytes": psutil.virtual_memory().total,
        "threads": threads,
        "gpus": [torch.cuda.get_device_name(index) for index in gpus] if torch else [],
    }


def _cpu_model() -> str:
    """Return the processor's name, from the kernel where it tells; empty if nobody does."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
