"""A job: every part of one run, instantiated and checked, ready to travel to the ranks; and the work of a rank."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from lightning.fabric import Fabric
from torch.optim import Optimizer

from fedsaf.core.types import ImageFacts, ServerContext
from fedsaf.data.augment import Augment
from fedsaf.data.batches import batch_bounds, preparation
from fedsaf.data.federated import FederatedData
from fedsaf.federation.checkpoint import Checkpoint
from fedsaf.federation.dataloader import LAST_BATCH, ClientDataLoader
from fedsaf.federation.final_messages import save_broadcast
from fedsaf.federation.interrupt import StopRequest
from fedsaf.federation.launch import FabricSettings
from fedsaf.federation.local_training import LocalTraining, LocalTrainingPlan
from fedsaf.federation.loop import FederatedLoop, LoopSettings
from fedsaf.federation.method import Method
from fedsaf.federation.pool import INITIALISATIONS, ClientFactory, ClientPool
from fedsaf.federation.ranks import Ranks, assign_owners
from fedsaf.federation.records import ClientFacts, RecordBuilder
from fedsaf.federation.round_logger import RoundLogger
from fedsaf.federation.scopes import read_scope
from fedsaf.federation.server import Server
from fedsaf.federation.store import STORES, open_store
from fedsaf.models.context import ModelContext
from fedsaf.models.groups import ModelGroup

log = logging.getLogger("fedsaf")


@dataclass(frozen=True)
class RunSettings:
    """Numbers and policies of the run that are not a part of their own.

    Attributes:
        batch_size: B.
        eval_batch_size: samples per step of evaluation and clean passes.
        last_batch: see `ClientDataLoader`.
        initialisation: see `ClientFactory`.
        diagnostics_every: see `RecordBuilder`.
        checkpoint_overhead: see `Checkpoint`.
        store: see `open_store`.
    """

    batch_size: int
    eval_batch_size: int
    last_batch: str
    initialisation: str
    diagnostics_every: int
    checkpoint_overhead: float
    store: str

    def __post_init__(self) -> None:
        known = {"last_batch": LAST_BATCH, "initialisation": INITIALISATIONS, "store": STORES}
        for name, choices in known.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} is {getattr(self, name)!r}; choose one of {', '.join(choices)}")


@dataclass(frozen=True)
class Outputs:
    """Where rank zero writes and shows; made there, since a mirror or a terminal does not travel.

    Attributes:
        folder: the run folder.
        recorder: () -> recorder.
        tracker: run id or None -> started mirror.
        progress: () -> display.
    """

    folder: Path
    recorder: Callable[[], Any]
    tracker: Callable[[str | None], Any]
    progress: Callable[[], Any]


@dataclass(frozen=True)
class Job:
    """Every part of one run. Picklable: with several ranks it travels to each.

    Attributes:
        data: images and who holds which.
        augment: what happens to training images.
        group: architectures.
        method: terms, channels, predictors.
        optimizer: builds an optimiser from parameter groups.
        fabric: where the ranks run.
        loop: counts and policies of the loop.
        plan: local training.
        settings: the other numbers.
        identity: values that a checkpoint must carry.
        outputs: records, mirror, progress.
    """

    data: FederatedData
    augment: Augment
    group: ModelGroup
    method: Method
    optimizer: Callable[[list[dict[str, Any]]], Optimizer]
    fabric: FabricSettings
    loop: LoopSettings
    plan: LocalTrainingPlan
    settings: RunSettings
    identity: Mapping[str, Any]
    outputs: Outputs

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint folder of this run."""
        return Checkpoint(self.outputs.folder / "checkpoint", self.settings.checkpoint_overhead)

    @cached_property
    def factory(self) -> ClientFactory:
        """Builder of the clients."""
        dataset = self.data.dataset
        return ClientFactory(
            models=ModelContext(self.group, dataset.num_classes, dataset.facts),
            method=self.method,
            optimizer=self.optimizer,
            rounds=self.loop.rounds,
            batch_size=self.settings.batch_size,
            seed=self.loop.seed,
            initialisation=self.settings.initialisation,
        )

    @cached_property
    def server(self) -> Server:
        """The server, set up once: here, in the process that assembles, from where it travels to rank zero."""
        dataset = self.data.dataset
        context = ServerContext(
            num_classes=dataset.num_classes,
            feature_dim=self.group.feature_dim,
            seed=self.loop.seed,
            rounds=self.loop.rounds,
            num_clients=self.loop.num_clients,
            class_counts=torch.from_numpy(self.data.record.train_counts),
            initial=lambda scope: read_scope(self.factory.template(), scope),
            class_names=dataset.class_names,
            images=dataset.facts if isinstance(dataset.facts, ImageFacts) else None,
        )
        return Server(self.method.channels, context)

    def loaders(self, device: torch.device) -> dict[int, ClientDataLoader]:
        """Return what each client reads, with inputs that are in memory on the device."""
        data = self.data.to(device)
        prepare = preparation(data.dataset.facts).to(device)
        return {
            client: ClientDataLoader(
                data=data.client(client),
                device=device,
                prepare=prepare,
                augment=self.augment,
                memory_format=self.group.memory_format_of(client, self.settings.batch_size),
                batch_size=self.settings.batch_size,
                eval_batch_size=self.settings.eval_batch_size,
                last_batch=self.settings.last_batch,
            )
            for client in self.clients
        }

    def check(self) -> None:
        """Try what would otherwise fail in the middle of the first round; name clients that will not train.

        Raises:
            ValueError: the optimiser or a constructor refuses its values, or no client has a batch or a test sample.
        """
        self.optimizer([{"params": [torch.nn.Parameter(torch.zeros(1))]}])
        _ = self.server  # aggregators refuse their values here
        size, rule = self.settings.batch_size, LAST_BATCH[self.settings.last_batch]
        idle = [client for client, facts in self.clients.items() if not batch_bounds(facts.num_train, size, *rule)]
        if len(idle) == len(self.clients):
            raise ValueError(
                f"no client has a training batch: batch_size is {size}, protocol.last_batch is "
                f"{self.settings.last_batch}; take smaller batches, fewer clients or protocol.last_batch=merge"
            )
        if not any(facts.num_test for facts in self.clients.values()):
            most = max(facts.num_train for facts in self.clients.values())
            raise ValueError(
                f"no client has a test sample, so that nothing could be scored; the largest of {len(self.clients)} "
                f"trains on {most} samples; give the clients more: fewer clients, or larger dataset.max_samples, "
                "partition.max_samples_per_client or partition.min_samples"
            )
        if idle:
            log.warning(
                "clients without a training batch, which neither train nor upload: %s", ", ".join(map(str, idle))
            )

    def about(self) -> dict[str, Any]:
        """Return what the summary says about the run beside its numbers."""
        return {
            "method": self.method.name,
            "predictor": self.method.predictor,
            "setup_bytes": self.server.setup_bytes(self.loop.num_clients),
        }

    @cached_property
    def clients(self) -> dict[int, ClientFacts]:
        """What never changes about each client."""
        record = self.data.record
        return {
            client: ClientFacts(
                self.group.architecture_of(client).name, len(record.train[client]), len(record.test[client])
            )
            for client in range(self.loop.num_clients)
        }


def perform(fabric: Fabric, stop: StopRequest, job: Job) -> None:
    """Do one rank's share of a job, from its checkpoint or its start to its end."""
    loop = rank_loop(fabric, stop, job)
    finished = False
    try:
        loop.run()
        finished = True
    finally:
        loop.round_logger.close(finished)
    if loop.ranks.is_zero:
        save_broadcast(job.outputs.folder, loop.server)


def rank_loop(fabric: Fabric, stop: StopRequest, job: Job) -> FederatedLoop:
    """Put the parts of a job together on one rank."""
    costs = {client: job.group.cost_of(client) * facts.num_train for client, facts in job.clients.items()}
    ranks = Ranks(fabric, assign_owners(costs, fabric.world_size))
    pool = ClientPool(job.factory, open_store(job.settings.store, job.outputs.folder), fabric.device)
    server, method = job.server, job.method
    work = LocalTraining(fabric, method.channels, method.callbacks, method.predictors, job.plan, lambda: stop.requested)
    round_logger = _round_logger(job, ranks)
    return FederatedLoop(job.loop, ranks, pool, job.loaders(fabric.device), work, server, round_logger)


def _round_logger(job: Job, ranks: Ranks) -> RoundLogger:
    builder = RecordBuilder(
        clients=job.clients,
        rules=list(job.method.predictors),
        diagnostics=job.method.diagnostics,
        diagnostics_every=job.settings.diagnostics_every,
        rounds=job.loop.rounds,
    )
    return RoundLogger(
        checkpoint=job.checkpoint,
        identity=job.identity,
        builder=builder,
        rounds=job.loop.rounds,
        cohort_size=job.loop.cohort_size,
        outputs=job.outputs if ranks.is_zero else None,
    )
