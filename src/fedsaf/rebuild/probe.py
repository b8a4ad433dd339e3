"""What one run of a kind costs, measured by two short rounds of it on synthetic data before anything real starts."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from fedsaf.rebuild.sweep import Composer, PlannedRun

SIZES: dict[str, tuple[int, int]] = {
    "cifar10": (60_000, 10),
    "cifar100": (60_000, 100),
    "tiny_imagenet": (110_000, 200),
    "flowers102": (8_189, 102),
    "fashion_mnist": (70_000, 10),
    "pacs": (9_991, 7),
    "domainnet": (586_575, 345),
    "ag_news": (127_600, 4),
    "amazon_review": (8_000, 2),
    "shakespeare": (420_000, 80),
    "digits": (1_797, 10),
}
"""Samples and classes of the official sets; of Shakespeare about as many windows as 118 roles have."""

TEXTS = ("ag_news", "amazon_review", "shakespeare")


@dataclass(frozen=True)
class RunCost:
    """What one run needs.

    Attributes:
        hours: on the machine that measured, with the threads of one run.
        sent_bytes: up and down, all rounds and clients.
        disk_bytes: of its folder, checkpoints included.
    """

    hours: float
    sent_bytes: float
    disk_bytes: float


@dataclass(frozen=True)
class Rates:
    """What a kind of run needs, whatever its size.

    Attributes:
        trained: seconds per sample that trains, and pass over it.
        tested: seconds per sample that is tested.
        served: seconds of the server, per client and round.
        sent: bytes up and down, per client and round.
        disk: bytes of checkpoints, per client.
    """

    trained: float
    tested: float
    served: float
    sent: float
    disk: float


def kind_of(run: PlannedRun) -> tuple[str, ...]:
    """Return what two runs share that cost alike per sample."""
    return run.choices["dataset"], run.choices["model_group"], run.config["method"]["name"]


def probed_costs(runs: Sequence[PlannedRun], composer: Composer, console: Console) -> dict[Path, RunCost]:
    """Measure one run of each kind; return the cost of every run by its folder."""
    kinds = {kind_of(run): run for run in runs}
    rates = {}
    for number, (kind, run) in enumerate(kinds.items(), 1):
        with console.status(f"measuring {number} of {len(kinds)}: {', '.join(kind)}"):
            rates[kind] = measure(run, composer)
    return {run.folder: cost_of(run, rates[kind_of(run)]) for run in runs}


def measure(run: PlannedRun, composer: Composer) -> Rates:
    """Run two rounds of this kind with one client per architecture."""
    from fedsaf.assembly import Origin, assemble
    from fedsaf.federation.interrupt import StopRequest
    from fedsaf.federation.job import rank_loop

    words = _short(run)
    config = composer.compose(words)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        job = assemble(Origin(config, composer.choices(words), words, "probe", folder))
        job.fabric.apply()
        fabric = job.fabric.fabric()
        fabric.launch()
        loop = rank_loop(fabric, StopRequest(insist=False), job)
        loop.run()
        loop.saver.close(finished=True)
        rows, timing = (_rows(folder / name) for name in ("metrics.jsonl", "timing.jsonl"))
        size = sum(path.stat().st_size for path in (folder / "checkpoint").glob("*")) / config["num_clients"]
    trained = sum(len(own) for own in job.data.record.train)
    tested = sum(len(own) for own in job.data.record.test)
    sent = rows[-1]["upload_bytes"]["total"] + rows[-1]["download_bytes"]["total"]
    return Rates(
        trained=timing[-1]["client"] / trained,
        tested=timing[-1]["evaluation"] / max(tested, 1),
        served=timing[-1]["server"] / config["num_clients"],
        sent=sent / config["num_clients"],
        disk=size,
    )


def _short(run: PlannedRun) -> list[str]:
    """Return the words of a run of this kind on a few synthetic samples."""
    config = run.config
    name = config["stand_in_for"] or run.choices["dataset"]
    clients = len(config["model_group"]["architectures"])
    classes, batch = SIZES[name][1], config["batch_size"]
    samples = max(clients * batch * 4 // 3 + clients, 2 * classes)
    text = name in TEXTS
    data = ["dataset=synthetic_text"] if text else ["dataset=synthetic", "dataset.channels=3"]
    data += [] if text else [f"dataset.image_size={config['dataset']['image_size'] or 32}"]
    kept = [word for word in run.frame if not word.startswith(("dataset=", "dataset.", "stand_in_for="))]
    own = [word for word in run.own if not word.startswith(("dataset=", "setting=", "partition.", "seed="))]
    setting = [word for word in run.own if word.startswith("setting=")]
    return [
        *kept,
        *setting,
        *own,
        *data,
        f"dataset.num_classes={classes}",
        f"dataset.num_samples={samples}",
        "partition=iid",
        f"num_clients={clients}",
        "participation_ratio=1.0",
        "rounds=2",
        "local_epochs=1",
        "protocol.split=stratified",
        "protocol.train_fraction=0.75",
        "eval_every=1",
        "diagnostics_every=0",
        "checkpoint_overhead=1",
        "logger=none",
        "progress=false",
    ]


def cost_of(run: PlannedRun, rates: Rates) -> RunCost:
    """Return what a whole run needs, from the rates of its kind."""
    config = run.config
    samples = _num_samples(run)
    fraction, rounds, ratio = config["protocol"]["train_fraction"], config["rounds"], config["participation_ratio"]
    training = samples * fraction * ratio * config["local_epochs"] * rates.trained * rounds
    testing = samples * (1 - fraction) * rates.tested * rounds / config["eval_every"]
    participations = config["num_clients"] * ratio * rounds
    return RunCost(
        hours=(training + testing + rates.served * participations) / 3600,
        sent_bytes=rates.sent * participations,
        disk_bytes=2 * rates.disk * config["num_clients"],
    )


def _num_samples(run: PlannedRun) -> int:
    """Return how many samples a run has at most."""
    config, name = run.config, run.config["stand_in_for"] or run.choices["dataset"]
    size, classes = SIZES[name]
    groups = config["num_clients"] if run.choices["partition"] == "by_domain" else 1
    per_class, per_client = config["dataset"].get("max_per_class"), config["partition"].get("max_samples_per_client")
    limits = [
        config["dataset"].get("max_samples"),
        per_class and per_class * classes * groups,
        per_client and per_client * config["num_clients"],
    ]
    return min([size, *(limit for limit in limits if limit)])


def _rows(path: Path) -> Sequence[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]
