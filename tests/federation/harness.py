"""Runs of whole jobs in this process, stopped or killed wherever a test wants it, and their comparison bit for bit."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import pickle
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from hydra import compose, initialize_config_dir
from lightning.fabric import Fabric
from omegaconf import OmegaConf

from fedsaf.assembly import Origin, assemble
from fedsaf.cli import chosen_groups
from fedsaf.core.config import check
from fedsaf.core.files import read_json
from fedsaf.core.identity import config_hash
from fedsaf.core.types import RoundRecord
from fedsaf.data.federated import FederatedData
from fedsaf.data.partition.record import PartitionRecord
from fedsaf.federation.interrupt import Interrupted, StopRequest
from fedsaf.federation.job import Job, perform
from fedsaf.tracking.progress import Progress
from fedsaf.tracking.recorder import Recorder

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf"

TINY = (
    "dataset=synthetic",
    "dataset.num_samples=160",
    "dataset.num_classes=4",
    "dataset.channels=1",
    "partition.min_samples=8",
    "num_clients=4",
    "rounds=3",
    "local_epochs=1",
    "batch_size=8",
    "feature_dim=16",
    "diagnostics_every=2",
    "checkpoint_overhead=1",
    "progress=false",
    "fabric.accelerator=cpu",
    "fabric.threads=1",
    "logger=none",
)
"""About 40 training images per client, a tenth of a second per round."""
LIGHT = ("model_group.architectures=[simple_cnn,resnet4]",)
"""A network without and one with batch normalisation."""


class Killed(BaseException):
    """The process dies here: no handler of the product may catch it as an error of a client."""


class Watch(Progress):
    """A display that sees the run go by; told by the round_logger like any other.

    Args:
        flag: what an interruption sets.
        stop_after: round whose record sets it; None for never.
        stop_within: round in whose training it is set, when the first client has finished; None for never.
    """

    def __init__(self, flag: StopRequest, stop_after: int | None, stop_within: int | None) -> None:
        self.flag, self.stop_after, self.stop_within = flag, stop_after, stop_within
        self.closed = -1

    def start(self, rounds: int, first_round: int, clients_per_round: int, rows: Sequence[object]) -> None:
        self.closed = first_round - 1

    def round(self, record: RoundRecord) -> None:
        self.closed = record.round
        if record.round == self.stop_after:
            self.flag.requested = True

    def advance(self, client: int) -> None:
        if self.closed + 1 == self.stop_within:
            self.flag.requested = True


class DiesAtStep:
    """Stands for the stop flag, which is polled before every training step: dies at the ``step``-th of the process."""

    def __init__(self, step: int) -> None:
        self.left = step

    @property
    def requested(self) -> bool:
        self.left -= 1
        if self.left == 0:
            raise Killed
        return False


class DiesAtWrite:
    """Dies at the n-th moment at which a file changes, before it does; what was not synced is left cut short.

    Args:
        monkeypatch: pytest's.
        at: n, from 1; 0 never dies and only counts.
    """

    def __init__(self, monkeypatch, at: int) -> None:
        self.at, self.count = at, 0
        save = torch.save

        def save_cut_short(state, path):
            save(state, path)
            if self._now():
                os.truncate(path, os.path.getsize(path) // 2)
                raise Killed

        fsync = os.fsync

        def sync_cut_short(handle):
            if self._now():
                if os.readlink(f"/proc/self/fd/{handle}").endswith(".partial"):  # and no record of former rounds
                    os.truncate(handle, os.fstat(handle).st_size // 2)
                raise Killed
            fsync(handle)

        monkeypatch.setattr(torch, "save", save_cut_short)
        monkeypatch.setattr(os, "fsync", sync_cut_short)
        for owner, name in ((os, "replace"), (Path, "unlink"), (Path, "write_bytes")):
            monkeypatch.setattr(owner, name, self._guarded(getattr(owner, name)))

    def _now(self) -> bool:
        self.count += 1
        return self.count == self.at

    def _guarded(self, function: Callable) -> Callable:
        def guarded(*args, **kwargs):
            if self._now():
                raise Killed
            return function(*args, **kwargs)

        return guarded


def origin(words: Iterable[str], folder: Path) -> Origin:
    """Compose and check like the entry, without Hydra's main."""
    words = list(words)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", overrides=words, return_hydra_config=True)
    choices = {k: v for k, v in config.hydra.runtime.choices.items() if isinstance(v, str) and "/" not in k}
    plain = OmegaConf.to_container(OmegaConf.masked_copy(config, [k for k in config if k != "hydra"]), resolve=True)
    check(plain, chosen_groups(words, choices))
    return Origin(plain, choices, words, config_hash(plain), folder)


def make_job(words: Iterable[str], folder: Path) -> Job:
    """Return the assembled job; its run folder is ``folder`` itself."""
    return assemble(origin(words, folder))


def run(
    words: Iterable[str],
    folder: Path,
    stop_after: int | None = None,
    stop_within: int | None = None,
    dies_at_step: int | None = None,
    alter: Callable[[Job], Job] = lambda job: job,
) -> Path:
    """Run a job on one rank from where its folder stands; a stop or a death ends the call, not the test.

    Args:
        words: overrides.
        folder: run folder.
        stop_after: see `Watch`.
        stop_within: see `Watch`.
        dies_at_step: see `DiesAtStep`.
        alter: changes the assembled job, for example its partition.
    """
    run_job(alter(make_job(words, folder)), stop_after, stop_within, dies_at_step)
    return folder


def run_job(
    job: Job, stop_after: int | None = None, stop_within: int | None = None, dies_at_step: int | None = None
) -> None:
    """Perform an assembled job on one rank; see `run`."""
    job.fabric.apply()
    stop = StopRequest(insist=True) if dies_at_step is None else DiesAtStep(dies_at_step)
    watch = partial(Watch, stop, stop_after, stop_within)
    job = dataclasses.replace(job, outputs=dataclasses.replace(job.outputs, progress=watch))
    recorder = Recorder(job.outputs.folder)
    recorder.status("running")
    try:
        perform(Fabric(accelerator="cpu", devices=1), stop, job)
    except Interrupted:
        recorder.status("interrupted")
    except Killed:
        return
    else:
        recorder.status("finished")


def fresh(job: Job, folder: Path) -> Job:
    """Return the job as a new process would have it, nothing shared with ``job``, with another run folder."""
    job = pickle.loads(pickle.dumps(job))
    outputs = dataclasses.replace(job.outputs, folder=folder, recorder=partial(Recorder, folder))
    return dataclasses.replace(job, outputs=outputs)


def perform_all(fabric: Fabric, stop: StopRequest, jobs: list[Job]) -> None:
    """Do one rank's share of several jobs, one after another: ranks are costly to start."""
    for job in jobs:
        perform(fabric, stop, job)


def state(folder: Path) -> str:
    """Return what ``status.json`` says."""
    return read_json(folder / "status.json")["state"]


def rounds_of(folder: Path) -> list[int]:
    """Return the recorded rounds."""
    return [row["round"] for row in Recorder(folder).rows()]


def tensors(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    """Return everything the checkpoint of a run folder holds: ``server``, and ``client <id>``."""
    manifest = json.loads((folder / "checkpoint/manifest.json").read_text())
    entries = {"server": manifest["server"]} | {f"client {k}": entry for k, entry in manifest["clients"].items()}
    return {name: torch.load(folder / "checkpoint" / entry["file"]) for name, entry in entries.items()}


def differences(a: Path, b: Path) -> list[str]:
    """Return what differs between two runs: records, prototypes and other final messages, checkpoints; to the bit."""
    found = []
    for name in ("metrics.jsonl", "clients.jsonl"):
        if (a / name).read_bytes() != (b / name).read_bytes():
            found.append(name)
    messages = [{file.name: file.read_bytes() for file in folder.glob("*.safetensors")} for folder in (a, b)]
    if messages[0] != messages[1]:
        found.append(f"final messages {sorted(messages[0])} and {sorted(messages[1])}")
    if (rounds := [rounds_of(folder) for folder in (a, b)])[0] != rounds[1]:
        found.append(f"rounds {rounds}")
    ours, theirs = tensors(a), tensors(b)
    for owner in sorted(ours.keys() | theirs.keys()):
        left, right = ours.get(owner, {}), theirs.get(owner, {})
        for key in sorted(left.keys() | right.keys()):
            if key not in left or key not in right or not _same_bits(left[key], right[key]):
                found.append(f"{owner}: {key}")
    return found


def compare(a: Path, b: Path) -> None:
    """Fail unless two runs ended in the same bits."""
    assert differences(a, b) == []


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a.contiguous().numpy().tobytes() == b.contiguous().numpy().tobytes()


def with_partition(job: Job, train: Sequence[np.ndarray], test: Sequence[np.ndarray]) -> Job:
    """Return the job with these index lists per client instead of those of its partition rule."""
    labels, num_classes = job.data.dataset.labels.numpy(), job.data.dataset.num_classes
    counts = [np.stack([np.bincount(labels[own], minlength=num_classes) for own in part]) for part in (train, test)]
    record = PartitionRecord(train, test, *counts, job.data.record.class_names, job.data.record.facts)
    identity = {**job.identity, "partition_hash": record.hash}
    return dataclasses.replace(job, data=FederatedData(job.data.dataset, record), identity=identity)


def lopsided(job: Job) -> Job:
    """Return the job with the hardest partition that 4 clients can have; the data set has at least 4 classes.

    The last class is held by nobody; client 0 holds two training samples of two classes, client 1 one class alone,
    client 2 and 3 the rest.
    """
    labels = job.data.dataset.labels.numpy()
    by_class = [list(np.flatnonzero(labels == c)) for c in range(job.data.dataset.num_classes - 1)]
    take = [[own.pop() for _ in range(n)] for own, n in zip(by_class[:2], (2, 1), strict=True)]
    parts = [
        ([take[0][0], take[1][0]], [take[0][1]]),
        (by_class[1][: len(by_class[1]) // 2], by_class[1][-3:]),
        *_halves([own[: len(own) // 2] for own in (by_class[0], *by_class[2:])]),
    ]
    train, test = ([np.array(part[side], dtype=np.int64) for part in parts] for side in (0, 1))
    return with_partition(job, train, test)


def _halves(classes: list[list[int]]) -> list[tuple[list[int], list[int]]]:
    """Share the samples of each class between two clients, a quarter of each share for testing."""
    parts = []
    for client in (0, 1):
        own = list(itertools.chain.from_iterable(samples[client::2] for samples in classes))
        parts.append((own[::4] + own[1::4] + own[2::4], own[3::4]))
    return parts
