import dataclasses
import os
import signal
import time
from types import SimpleNamespace

import pytest
import torch
from torch.multiprocessing import ProcessRaisedException

from fedsaf.federation import launch as launching
from fedsaf.federation.interrupt import Interrupted
from fedsaf.federation.launch import FabricSettings, launch
from fedsaf.federation.ranks import ClientError

ONE = FabricSettings(accelerator="cpu", devices=1, num_nodes=1, precision="32-true", threads=1, deterministic=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precision": "8"}, "choose one of 32-true"),
        ({"devices": 0}, "fabric.devices is 0"),
        ({"devices": None}, "fabric.devices is None"),
        ({"threads": 0}, "fabric.threads is 0"),
        ({"deterministic": "yes"}, "choose false, warn or true"),
        ({"num_nodes": 2}, "torchrun --nnodes 2"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(ONE, **changes)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device")
def test_a_missing_device_is_a_plain_error():
    with pytest.raises(ValueError, match=r"fabric.accelerator is 'cuda' and fabric.devices 1"):
        dataclasses.replace(ONE, accelerator="cuda").fabric()


def test_threads_share_the_cores_of_the_machine(monkeypatch):
    monkeypatch.setattr(launching, "available_cores", lambda: 8)
    settings = dataclasses.replace(ONE, threads=None)
    assert settings.threads_per_rank == 8
    assert dataclasses.replace(settings, devices=3).threads_per_rank == 2
    assert dataclasses.replace(settings, devices=20).threads_per_rank == 1
    assert dataclasses.replace(settings, threads=5).threads_per_rank == 5


def test_one_rank_works_in_this_process():
    seen = []
    launch(ONE, lambda fabric, stop, job: seen.append((os.getpid(), fabric.world_size, stop.requested, job)), "job")
    assert seen == [(os.getpid(), 1, False, "job")]


def _fails(fabric, stop, job):
    if job == "client":
        raise ClientError("client 3, round 1: OSError")
    if fabric.global_rank == 1:
        raise ZeroDivisionError("of rank 1")
    fabric.barrier()


def _waits_to_be_stopped(fabric, stop, job):
    if fabric.global_rank == 0:
        os.kill(os.getppid(), signal.SIGTERM)
    while not stop.requested:
        time.sleep(0.01)
    raise Interrupted


def _is_told_too_early(settings, work, job, fabric):
    """Stands for a rank that has no handler yet."""
    if fabric.global_rank == 0:
        os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(60)


TWO = dataclasses.replace(ONE, devices=2)


@pytest.mark.distributed
def test_what_all_ranks_raise_together_comes_home_as_it_is():
    with pytest.raises(ClientError, match="client 3, round 1"):
        launch(TWO, _fails, "client")


@pytest.mark.distributed
def test_a_rank_that_fails_alone_takes_the_others_along():
    """The other waits for it in a collective, as ranks do; it must not wait for ever."""
    with pytest.raises(ProcessRaisedException, match=r"of rank 1|onnection"):
        launch(TWO, _fails, "rank")


@pytest.mark.distributed
@pytest.mark.parametrize("listening", [True, False])
def test_a_signal_to_the_parent_reaches_the_ranks(monkeypatch, listening):
    if not listening:
        monkeypatch.setattr(launching, "_spawned", _is_told_too_early)
    with pytest.raises(Interrupted):
        launch(TWO, _waits_to_be_stopped, None)


@pytest.mark.parametrize(
    ("environment", "single", "writes"),
    [
        ({}, True, True),
        ({"TORCHELASTIC_RUN_ID": "1", "RANK": "0"}, False, True),
        ({"TORCHELASTIC_RUN_ID": "1", "RANK": "1"}, False, False),
        ({"SLURM_NTASKS": "1", "SLURM_PROCID": "0"}, True, True),
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "3"}, False, False),
    ],
)
def test_which_process_writes_if_every_rank_is_one(monkeypatch, environment, single, writes):
    from fedsaf import run

    monkeypatch.setattr(run, "os", SimpleNamespace(environ=environment))
    assert (run.single_process(), run.writes()) == (single, writes)
