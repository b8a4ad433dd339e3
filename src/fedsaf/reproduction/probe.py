"""What one run of a kind costs, measured by two short rounds of it on synthetic data before anything real starts."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from fedsaf.reproduction.cell import Cell
from fedsaf.reproduction.composer import Composer

SIZES: dict[str, tuple[int, int, int]] = {
    "cifar10": (50_000, 10_000, 10),
    "cifar100": (50_000, 10_000, 100),
    "tiny_imagenet": (100_000, 10_000, 200),
    "flowers102": (2_040, 6_149, 102),
    "fashion_mnist": (60_000, 10_000, 10),
    "pacs": (9_991, 0, 7),
    "domainnet": (586_575, 0, 345),
    "ag_news": (120_000, 7_600, 4),
    "amazon_review": (8_000, 0, 2),
    "amazon_review_counts": (8_000, 0, 2),
    "shakespeare": (378_000, 42_000, 80),
    "digits": (1_437, 360, 10),
}
"""Training samples, test samples and classes of the official sets; of Shakespeare about the windows of 118 roles."""

OWN_SPLIT = ("shakespeare",)
"""Sets that are split by a rule of their own, whatever the protocol says."""

TRAINED, TESTED = 40, 50
"""Samples that a client of a measurement trains and is tested on, at least; with few, setting up is all one sees."""

TEXTS = ("ag_news", "amazon_review", "amazon_review_counts", "shakespeare", "synthetic_text")
IID = {"_target_": "fedsaf.data.partition.quantity_shift.IID", "seed": 1, "generator": "numpy"}
"""How the few samples are shared out, whatever the run does."""


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


def kind_of(run: Cell) -> tuple[str, ...]:
    """Return what two runs share that cost alike per sample."""
    epochs = run.config["prototype"].get("epochs")
    own = () if epochs is None else (f"S = {epochs}",)
    return run.choices["dataset"], run.choices["model_group"], run.config["method"]["name"], *own


def probed_costs(
    runs: Sequence[Cell], composer: Composer, console: Console, words: Sequence[str] = ()
) -> dict[Path, RunCost]:
    """Measure one run of each kind; return the cost of every run by its folder.

    A kind that cannot be measured on a few synthetic samples is named and has no cost.

    Args:
        runs: whose costs are wanted.
        composer: of configurations.
        console: says what is being measured.
        words: further ones of every run, such as its threads.
    """
    kinds = {kind_of(run): run for run in runs}
    rates = {}
    if kinds and not console.is_terminal:  # where no status line moves
        console.print(f"measuring {len(kinds)} kind(s) of run on synthetic data")
    for number, (kind, run) in enumerate(kinds.items(), 1):
        with console.status(f"measuring {number} of {len(kinds)}: {', '.join(kind)}"):
            try:
                rates[kind] = measure(run, composer, words)
            except (ValueError, RuntimeError, OSError) as error:
                console.print(f"not measured: {', '.join(kind)}: {error}")
    return {run.folder: cost_of(run, rates[kind_of(run)]) for run in runs if kind_of(run) in rates}


def measure(run: Cell, composer: Composer, further: Sequence[str] = ()) -> Rates:
    """Run two rounds of this kind with one client per architecture."""
    from fedsaf.assembly import Origin, assemble
    from fedsaf.federation.interrupt import StopRequest
    from fedsaf.federation.job import rank_loop

    words = [*_short(run), *further]
    config = composer.compose(words) | {"partition": IID}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        job = assemble(Origin(config, composer.choices(words), words, "probe", folder))
        job.fabric.apply()
        fabric = job.fabric.fabric()
        fabric.launch()
        loop = rank_loop(fabric, StopRequest(insist=False), job)
        loop.run()
        loop.round_logger.close(finished=True)
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


def _short(run: Cell) -> list[str]:
    """Return the words of a run of this kind on a few synthetic samples."""
    config, name = run.config, run.choices["dataset"]
    clients = len(config["model_group"]["architectures"])
    classes, batch = _official(run)[2], config["batch_size"]
    trained = max(clients * max(batch + 1, TRAINED), 3 * classes // 2)
    samples = trained + clients * TESTED
    channels = 1 if (name, config["dataset"].get("mode")) == ("digits", "auto") else 3
    text = name in TEXTS
    data = ["dataset=synthetic_text"] if text else ["dataset=synthetic", f"dataset.channels={channels}"]
    data += [] if text else [f"dataset.image_size={config['dataset']['image_size'] or 32}"]
    kept = [word for word in run.frame if not word.startswith(("dataset=", "dataset.", "partition.", "stand_in_for="))]
    own = [word for word in run.own if not word.startswith(("dataset=", "scenario=", "partition.", "seed="))]
    setting = [word for word in run.own if word.startswith("scenario=")]
    return [
        *kept,
        *setting,
        *own,
        *data,
        f"dataset.num_classes={classes}",
        f"dataset.num_samples={samples}",
        f"num_clients={clients}",
        "participation_ratio=1.0",
        "rounds=2",
        "local_epochs=1",
        "protocol.split=stratified",
        f"protocol.train_fraction={trained / samples:.4f}",
        "eval_every=2",
        "diagnostics_every=0",
        "checkpoint_overhead=1",
        "logger=none",
        "progress=false",
    ]


def cost_of(run: Cell, rates: Rates) -> RunCost:
    """Return what a whole run needs, from the rates of its kind."""
    config = run.config
    trained, tested = _amounts(run)
    participations = config["num_clients"] * config["participation_ratio"] * config["rounds"]
    training = trained * config["local_epochs"] * config["participation_ratio"] * config["rounds"] * rates.trained
    testing = tested * config["rounds"] / config["eval_every"] * rates.tested
    return RunCost(
        hours=(training + testing + rates.served * participations) / 3600,
        sent_bytes=rates.sent * participations,
        disk_bytes=2 * rates.disk * config["num_clients"],
    )


def _official(run: Cell) -> tuple[int, int, int]:
    """Return training samples, test samples and classes of the whole set.

    Raises:
        ValueError: nothing is known about the set before it is read.
    """
    name, dataset = run.choices["dataset"], run.config["dataset"]
    if name in SIZES:
        train, test, classes = SIZES[name]
        return train, 0 if dataset.get("splits") == ["train"] else test, classes
    if "num_samples" not in dataset:
        raise ValueError(f"the size of dataset={name} is not known before it is read")
    return dataset["num_samples"], 0, dataset["num_classes"]


def _amounts(run: Cell) -> tuple[float, float]:
    """Return how many samples train at all clients, and how many are tested in an evaluation."""
    config, (train, test, _) = run.config, _official(run)
    samples = _num_samples(run)
    if config["protocol"]["split"] == "common" and test:  # everyone is tested on the whole official test part
        return samples * train / (train + test), samples * test / (train + test) * config["num_clients"]
    has_own = run.choices["dataset"] in OWN_SPLIT
    fraction = train / (train + test) if has_own else config["protocol"]["train_fraction"]
    return samples * fraction, samples * (1 - fraction)


def _num_samples(run: Cell) -> int:
    """Return how many samples a run has at most."""
    config, (train, test, classes) = run.config, _official(run)
    groups = config["num_clients"] if run.choices["partition"] == "by_domain" else 1
    per_class, per_client = config["dataset"].get("max_per_class"), config["partition"].get("max_samples_per_client")
    limits = [
        config["dataset"].get("max_samples"),
        per_class and per_class * classes * groups,
        per_client and per_client * config["num_clients"],
    ]
    return min([train + test, *(limit for limit in limits if limit)])


def _rows(path: Path) -> Sequence[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]
