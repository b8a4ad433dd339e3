"""Benchmark: what a federated round costs beside a bare PyTorch loop over the same batches. ``make bench``.

Both run in one process, at pinned threads, alternating, and the median of their ratios is reported; a single timing on
a shared machine says little. The bare loop is what one would write by hand: forward, loss, backward, step, a pass for
the class means, their mean, and one evaluation pass with both prediction rules. The rows of two ranks start processes
of their own: two ranks of one thread each against the bare loop on two threads in PyTorch's default memory layout.

The second table tells which share of the time goes into making batches (gathering, augmenting, normalising): of the
clients' turns, as the run records it, and of the whole round, the batches of all passes being made once more alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

if "--bare" not in sys.argv:  # the bare loop of the second table gets torch as it comes
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as src/train.py does, before torch is loaded

import torch
import torch.nn.functional as F
from hydra import compose, initialize_config_dir
from rich.console import Console
from rich.table import Table

from fedsaf.assembly import Origin, assemble
from fedsaf.core.config import CONF, resolved
from fedsaf.core.seeding import torch_generator
from fedsaf.core.types import StepView
from fedsaf.federation.interrupt import StopRequest
from fedsaf.federation.job import Job, rank_loop
from fedsaf.federation.loop import FederatedLoop
from fedsaf.losses.alignment import GCSA
from fedsaf.losses.two_level import InstanceLevel, PrototypeLevel
from fedsaf.prototypes.class_table import ClassTable
from fedsaf.tracking.recorder import TIMING, read_rows

WORDS = (
    "dataset=synthetic dataset.channels=3 dataset.image_size=32 dataset.num_classes=10 partition=dirichlet_0.1 "
    "alignment=gcsa num_clients=20 batch_size=100 local_epochs=1 logger=none progress=false diagnostics_every=0"
)


def job_of(words: list[str], folder: Path) -> Job:
    """Assemble a job from override words, as the entry does."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = resolved(compose("train", overrides=[*WORDS.split(), *words]))
    return assemble(Origin(config, {}, words, "bench", folder))


@contextmanager
def launched(words: list[str], repeats: int) -> Iterator[tuple[Job, FederatedLoop]]:
    """Start a job on one thread of this process, with two rounds more than repeats: one to warm up, one in reserve."""
    with tempfile.TemporaryDirectory() as folder:
        job = job_of([*words, "fabric.threads=1", f"rounds={repeats + 2}"], Path(folder))
        job.fabric.apply()
        fabric = job.fabric.fabric()
        fabric.launch()
        yield job, rank_loop(fabric, StopRequest(insist=False), job)


class BareLoop:
    """The hand-written loop over the same models, batches and loss."""

    def __init__(self, job: Job, contiguous: bool) -> None:
        self.job, self.dataset = job, job.data.dataset
        self.loaders = job.loaders(torch.device("cpu"))
        self.models = {client: job.factory.build(client).model for client in job.clients}
        if contiguous:
            self.models = {c: m.to(memory_format=torch.contiguous_format) for c, m in self.models.items()}
            self.loaders = {c: replace(f, memory_format=torch.contiguous_format) for c, f in self.loaders.items()}
        self.levels = [PrototypeLevel(GCSA(), "skip"), InstanceLevel(GCSA(), "skip")]
        self.table: ClassTable | None = None

    def round(self, t: int) -> None:
        """Train, average, evaluate."""
        num_classes, dim = self.dataset.num_classes, self.job.group.feature_dim
        sums, counts = torch.zeros(num_classes, dim, dtype=torch.float64), torch.zeros(num_classes)
        for client, model in self.models.items():
            self._train(client, model, t)
            with torch.inference_mode():
                for x, y in self.loaders[client].clean_pass():
                    sums.index_add_(0, y, model(x)[0].double())
                    counts += y.bincount(minlength=num_classes)
        self.table = ClassTable((sums / counts.clamp(min=1)[:, None]).float(), counts > 0)
        hits = 0
        for client, model in self.models.items():
            with torch.inference_mode():
                for x, y in self.loaders[client].test_pass():
                    z, logits = model(x)
                    hits += int((logits.argmax(1) == y).sum())
                    hits += int((torch.cdist(z, self.table.values).argmin(1) == y).sum())

    def _train(self, client: int, model: torch.nn.Module, t: int) -> None:
        loader = self.loaders[client]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        model.train()
        received = {} if self.table is None else {"prototypes": self.table}
        order = torch.randperm(loader.num_train, generator=torch_generator(0, "order", t, client))
        for x, y in loader.train_pass(order):
            optimizer.zero_grad()
            z, logits = model(x)
            loss = F.cross_entropy(logits, y)
            view = StepView(x, y, z, logits, t, 1, received, model, {}, {}, {})
            for level in self.levels:
                value = level(view)
                loss = loss + value if value.requires_grad else loss
            loss.backward()
            optimizer.step()
        model.eval()


def seconds(action: Callable[[], object]) -> float:
    """Return the wall time of an action."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def medians(pairs: list[tuple[float, float]]) -> tuple[float, float, float]:
    """Return the medians of the bare loop's and our seconds, and of their ratios."""
    bare, ours = zip(*pairs, strict=True)
    return median(bare), median(ours), median(own / theirs for theirs, own in pairs)


def overhead(words: list[str], repeats: int) -> tuple[float, float, float]:
    """Return `medians` of a round, both on one thread in one layout."""
    with launched(words, repeats) as (job, loop):
        bare, steps = BareLoop(job, contiguous=False), loop.steps()
        next(steps)  # the evaluation before training
        pairs = [(seconds(partial(bare.round, t)), seconds(lambda: next(steps))) for t in range(repeats + 1)]
        loop.round_logger.close(finished=False)
    return medians(pairs[1:])  # the first round warms up, and has no prototypes to align with


def data_shares(words: list[str], repeats: int) -> tuple[float, float, float]:
    """Return median seconds of a round, and the share of data in the clients' turns and in the whole round."""
    with launched(words, repeats) as (job, loop):
        for _ in loop.steps():
            pass
        loop.round_logger.close(finished=True)
        rows = read_rows(job.outputs.folder / TIMING)[2:]  # the evaluation before training, and a round to warm up
        passes = median(seconds(lambda: make_batches(job)) for _ in range(repeats))
    total = median(row["total"] for row in rows)
    return total, median(row["data"] / row["client"] for row in rows), passes / total


def make_batches(job: Job) -> None:
    """Make every batch of one round: training, class means, evaluation."""
    for loader in job.loaders(torch.device("cpu")).values():
        order = torch.randperm(loader.num_train)
        for batches in (loader.train_pass(order), loader.clean_pass(), loader.test_pass()):
            for _ in batches:
                pass


def bare_in_default_layout(words: list[str], repeats: int) -> None:
    """Print the seconds per round of the bare loop on two threads in the default layout; run in its own process."""
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        bare = BareLoop(job_of([*words, "fabric.threads=2"], Path(folder)), contiguous=True)
        print(json.dumps([seconds(partial(bare.round, t)) for t in range(repeats + 1)][1:]))


def two_ranks(words: list[str], repeats: int) -> tuple[float, float, float]:
    """Return `medians` of the bare loop on two threads in the default layout and of two ranks of one thread."""
    start = partial(subprocess.run, capture_output=True, text=True, check=True)
    as_torch_comes = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    ranks = ["fabric.devices=2", "fabric.accelerator=cpu", "fabric.threads=1", "rounds=3"]
    pairs = []
    for _ in range(repeats):
        printed = start([sys.executable, "-m", "fedsaf.bench", "--bare", "2", *words], env=as_torch_comes).stdout
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "fedsaf.train", *WORDS.split(), *words, *ranks, f"results_root={folder}"]
            start(command, env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE"})
            rows = read_rows(next(Path(folder).glob(f"*/{TIMING}")))[2:]  # round 1 warms up
        pairs.append((median(json.loads(printed.splitlines()[-1])), median(row["total"] for row in rows)))
    return medians(pairs)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="override words for every measurement")
    parser.add_argument("--groups", default="htfe4,cnn,small", help="model groups, or architectures, comma-separated")
    parser.add_argument("--samples", type=int, default=10_000, help="images in all")
    parser.add_argument("--repeats", type=int, default=3, help="alternations")
    parser.add_argument("--shares", action="store_true", help="only the share of making batches")
    parser.add_argument("--bare", type=int, default=0, help="internal: rounds of the bare loop in this process")
    options = parser.parse_args()
    if options.bare:
        bare_in_default_layout(options.words, options.bare)
        return
    size = f"{options.samples} images"
    size = f"{options.samples} images"
    rounds = Table(title=f"seconds per round, {size} of 3 x 32 x 32, 20 clients, Dir(0.1), batch 100")
    for name in ("models", "setting", "bare loop", "federated round", "ratio"):
        rounds.add_column(name)
    shares = Table(title=f"share of making batches: 1 thread, {size}, 20 clients, batch 100")
    for name in ("models", "images", "seconds per round", "of the clients' turns", "of the round, all passes"):
        shares.add_column(name)
    for group in options.groups.split(","):
        known = (CONF / "model_group" / f"{group}.yaml").exists()
        choice = f"model_group={group}" if known else f"model_group.architectures=[{group}]"
        words = [choice, f"dataset.num_samples={options.samples}", *options.words]
        if not options.shares:
            bare, ours, ratio = overhead(words, options.repeats)
            rounds.add_row(group, "1 thread, same layout", f"{bare:.2f}", f"{ours:.2f}", f"{ratio:.2f}")
            bare, ours, ratio = two_ranks(words, options.repeats)
            setting = "2 threads, default layout, against 2 ranks of 1 thread"
            rounds.add_row(group, setting, f"{bare:.2f}", f"{ours:.2f}", f"{ratio:.2f} (x{1 / ratio:.2f} rounds/s)")
        for side in (32, 64):
            total, turns, passes = data_shares([*words, f"dataset.image_size={side}"], options.repeats)
            shares.add_row(group, f"3 x {side} x {side}", f"{total:.2f}", f"{turns:.1%}", f"{passes:.1%}")
    Console(width=120).print(*([] if options.shares else [rounds]), shares)


if __name__ == "__main__":
    main()
