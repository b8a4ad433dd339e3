"""From a checked configuration to a job. The last place that sees configuration; everything behind it sees objects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import OmegaConf
from rich.console import Console

from fedsaf.core.files import write_atomically
from fedsaf.core.fingerprints import write_fingerprint
from fedsaf.data.datasets import Samples
from fedsaf.data.federated import FederatedData, Validation, federate
from fedsaf.data.partition.report import partition_picture, partition_table
from fedsaf.federation.job import Job, Outputs, RunSettings
from fedsaf.federation.local_training import LocalTrainingPlan
from fedsaf.federation.loop import LoopSettings
from fedsaf.tracking.environment import environment
from fedsaf.tracking.progress import Progress, make_progress
from fedsaf.tracking.recorder import Recorder


@dataclass(frozen=True)
class Origin:
    """Where a job comes from: resolved configuration, choice of each group, overrides as typed, hash, run folder."""

    config: Mapping[str, Any]
    choices: Mapping[str, str]
    words: list[str]
    config_hash: str
    folder: Path

    def write(self, job: Job) -> None:
        """Write everything about the run that does not change while it goes on."""
        self.folder.mkdir(parents=True, exist_ok=True)
        content = {**self.config, "choices": dict(self.choices), "overrides": self.words}
        write_atomically(self.folder / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(content)))
        record = environment(threads=job.fabric.threads_per_rank) | {"ranks": job.fabric.num_ranks}
        write_atomically(self.folder / "environment.json", json.dumps(record, indent=2, sort_keys=True) + "\n")
        write_fingerprint(self.folder, self.config, job.data.dataset, (record["git"] or {}).get("commit"))
        job.data.record.save(self.folder)
        if not (self.folder / "partition.png").exists():
            partition_picture(job.data.record, self.folder / "partition.png")


def assemble(origin: Origin) -> Job:
    """Instantiate and check every part.

    Raises:
        ValueError: a part refuses its values, or data and models do not fit; nothing has been written then.
        FileNotFoundError: data or weights that are not where they should be.
    """
    config = origin.config
    parts = {name: build(config, name) for name in ("augment", "method", "optimizer", "fabric")}
    group, logger = build(config, "model_group"), build(config, "logger")
    data = federated_data(config)
    parts["fabric"].fabric()
    parts["method"].check(group)
    parts["augment"].check(data.dataset.facts)
    group.check(config["batch_size"], data.dataset.facts)
    job = Job(
        **parts,
        data=data,
        group=group,
        loop=_pick(LoopSettings, config),
        plan=_pick(LocalTrainingPlan, config),
        settings=_pick(RunSettings, config),
        identity={
            "config_hash": origin.config_hash,
            "partition_hash": data.record.hash,
            "fingerprint": data.dataset.fingerprint,
        },
        outputs=Outputs(
            folder=origin.folder,
            recorder=partial(Recorder, origin.folder),
            tracker=partial(_start_tracker, logger, origin),
            progress=make_progress if config["progress"] else Progress,
        ),
    )
    job.check()
    return job


def build(config: Mapping[str, Any], name: str) -> Any:
    """Build one part; what its own checks say comes out as it is, without Hydra's wrapping."""
    node = config[name]
    if name == "method":  # what `fedsaf.core.config.check_choices` alone reads
        node = {key: value for key, value in node.items() if key not in ("reads", "fixes")}
    try:
        return instantiate(node, _convert_="all")
    except InstantiationException as error:
        if isinstance(error.__cause__, ValueError | OSError):
            raise error.__cause__ from None
        if isinstance(error.__cause__, TypeError):  # a key too many or too few
            raise ValueError(f"{name}: {error.__cause__}") from error
        raise


def federated_data(config: Mapping[str, Any]) -> FederatedData:
    """Load the data and share it out; subset and partition depend on the partition seed, never on the run's.

    Raises as `assemble` does; ValueError also where the rule cannot serve the clients from these data.
    """
    partitioner, protocol, validation = build(config, "partition"), config["protocol"], _validation(config)
    dataset = _load(config, partitioner.seed, validation)
    return federate(
        dataset, partitioner, config["num_clients"], protocol["split"], protocol["train_fraction"], validation
    )


def samples(config: Mapping[str, Any]) -> Samples:
    """Load the data that a run reads, without sharing them out; raises as `federated_data` does."""
    return _load(config, build(config, "partition").seed, _validation(config))


def _load(config: Mapping[str, Any], seed: int, validation: Validation | None) -> Samples:
    return build(config, "dataset").load(seed, validation.subset if validation else 0)


def _validation(config: Mapping[str, Any]) -> Validation | None:
    return Validation(**config["validation"]) if "validation" in config else None


def show_partition(data: FederatedData) -> None:
    """Print who holds what, one line per client and part."""
    Console().print(partition_table(data.record))


def _start_tracker(tracker: Any, origin: Origin, run_id: str | None) -> Any:
    tracker.start(origin.folder, origin.config, origin.choices, run_id)
    return tracker


def _pick(kind: type[Any], config: Mapping[str, Any]) -> Any:
    """Build a settings record from the keys of the same names, those of the protocol where it has them."""
    protocol = config["protocol"]
    return kind(**{one.name: (protocol if one.name in protocol else config)[one.name] for one in fields(kind)})
