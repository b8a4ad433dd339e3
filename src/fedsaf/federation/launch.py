"""Fabric: how many ranks, where, at which precision; and what one rank does.

One mechanism for one core, several GPUs and several nodes: Fabric ranks that own clients. Clients are never set up with
Fabric, so no gradient is ever averaged between them.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from lightning.fabric import Fabric
from lightning.fabric.plugins.environments import SLURMEnvironment, TorchElasticEnvironment
from lightning.fabric.strategies import DDPStrategy
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch.multiprocessing import ProcessExitedException

from fedsaf.federation.interrupt import Interrupted, StopRequest
from fedsaf.federation.ranks import ClientError

# Here, so that a spawned rank, too, is quiet before it joins the others.
logging.getLogger("lightning.fabric").setLevel(logging.WARNING)

Job = TypeVar("Job")
ACCELERATORS = ("auto", "cpu", "cuda", "gpu", "mps")
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")


@dataclass(frozen=True)
class FabricSettings:
    """Where and how the ranks run.

    Attributes:
        accelerator: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        devices: ranks per machine.
        num_nodes: machines.
        precision: ``32-true``, ``bf16-mixed`` or ``16-mixed``.
        threads: intra-op threads per rank; None shares the cores among the ranks of a machine.
        deterministic: False, ``warn`` or True, for operations without a deterministic version on a GPU.
    """

    accelerator: str
    devices: int
    num_nodes: int
    precision: str
    threads: int | None
    deterministic: bool | str

    def __post_init__(self) -> None:
        if self.accelerator not in ACCELERATORS:
            raise ValueError(f"fabric.accelerator is {self.accelerator!r}; choose one of {', '.join(ACCELERATORS)}")
        if self.precision not in PRECISIONS:
            raise ValueError(f"fabric.precision is {self.precision!r}; choose one of {', '.join(PRECISIONS)}")
        for name in ("devices", "num_nodes"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise ValueError(f"fabric.{name} is {getattr(self, name)!r}; expected a whole number >= 1")
        if self.threads is not None and (not isinstance(self.threads, int) or self.threads < 1):
            raise ValueError(f"fabric.threads is {self.threads!r}; expected a whole number >= 1, or null")
        if self.deterministic not in (False, True, "warn"):
            raise ValueError(f"fabric.deterministic is {self.deterministic!r}; choose false, warn or true")
        if self.num_nodes > 1 and not self.started_outside:
            raise ValueError(
                f"fabric.num_nodes is {self.num_nodes}, but nothing started the ranks; start them with "
                f"torchrun --nnodes {self.num_nodes} --nproc-per-node {self.devices}, or with srun"
            )

    @property
    def started_outside(self) -> bool:
        """Whether torchrun or Slurm has started the ranks."""
        return TorchElasticEnvironment.detect() or (
            SLURMEnvironment.detect() and int(os.environ.get("SLURM_NTASKS", "1")) > 1
        )

    @property
    def num_ranks(self) -> int:
        """Ranks in all."""
        return self.devices * self.num_nodes

    @property
    def threads_per_rank(self) -> int:
        """Intra-op threads of each rank."""
        return self.threads or max(1, available_cores() // self.devices)

    def fabric(self) -> Fabric:
        """Return a Fabric that is not launched yet; ValueError if this machine does not have what it asks for."""
        strategy: Any = "auto"
        if self.num_ranks > 1:
            strategy = DDPStrategy(start_method="popen" if self.started_outside else "spawn")
        try:
            return Fabric(
                accelerator=self.accelerator,
                devices=self.devices,
                num_nodes=self.num_nodes,
                precision=self.precision,
                strategy=strategy,
            )
        except (MisconfigurationException, RuntimeError) as error:  # the latter where the accelerator is missing
            raise ValueError(
                f"fabric.accelerator is {self.accelerator!r} and fabric.devices {self.devices}: {error}"
            ) from error

    def apply(self) -> None:
        """Set threads and determinism in this process, before any work."""
        torch.set_num_threads(self.threads_per_rank)
        if self.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True, warn_only=self.deterministic == "warn")


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def launch(settings: FabricSettings, work: Callable[[Fabric, StopRequest, Job], None], job: Job) -> None:
    """Run ``work`` on every rank and wait for all of them.

    Args:
        settings: how many ranks and where.
        work: what one rank does; picklable, as it may travel to another process.
        job: its argument; likewise.

    Raises:
        Interrupted: if the run was asked to stop and has saved what it had.
    """
    fabric = settings.fabric()
    if settings.num_ranks == 1 or settings.started_outside:
        fabric.launch()
        with StopRequest(insist=True) as stop:
            settings.apply()
            work(fabric, stop, job)
        return
    with StopRequest(insist=True) as stop:
        try:
            # Bound rather than passed: Fabric searches its arguments for modules and stops at a frozen dataclass.
            problem = fabric.launch(partial(_spawned, settings, work, job))
        except ProcessExitedException:
            if not stop.requested:
                raise
            raise Interrupted from None  # told before the rank could listen: it had not begun
    if problem is not None:
        raise problem


def _spawned(
    settings: FabricSettings, work: Callable[[Fabric, StopRequest, Job], None], job: Job, fabric: Fabric
) -> Exception | None:
    """Run in a spawned rank; bring an exception home as a value, since all ranks raise it together."""
    _die_with_parent()
    settings.apply()
    with StopRequest(insist=False) as stop:
        try:
            work(fabric, stop, job)
        except (Interrupted, ClientError) as error:  # raised on all ranks at once, so nobody waits for another
            return error
    return None


def _die_with_parent() -> None:
    """Ask Linux to kill this process when its parent dies, so that a killed run leaves nobody who still writes."""
    if sys.platform.startswith("linux"):
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
