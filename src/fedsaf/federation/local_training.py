"""One client's turn: local training with its exchange, and evaluation. The only optimiser loop of the project."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from fedsaf.core.contracts import Callback, Predictor
from fedsaf.core.seeding import seeded, torch_generator
from fedsaf.core.types import ClientResult, Message
from fedsaf.evaluation.metrics import ClientAccuracy
from fedsaf.federation.client import FederatedClient
from fedsaf.federation.dataloader import ClientDataLoader
from fedsaf.federation.interrupt import Interrupted
from fedsaf.federation.method import Channel


@dataclass(frozen=True)
class LocalTrainingPlan:
    """How local training goes, the same for all clients.

    Attributes:
        seed: run seed.
        local_epochs: E.
        shuffle: ``each_epoch`` draws a new order per client, round and epoch; ``fixed`` keeps the order of the split.
    """

    seed: int
    local_epochs: int
    shuffle: str

    def __post_init__(self) -> None:
        if self.shuffle not in ("each_epoch", "fixed"):
            raise ValueError(f"shuffle is {self.shuffle!r}; choose each_epoch or fixed")


class LossLog:
    """Values of the terms over the steps of one round; read back from the device once per epoch."""

    def __init__(self, client: int, round: int) -> None:
        self.client, self.round = client, round
        self.steps: list[dict[str, Tensor]] = []
        self.sums: dict[str, float] = {}
        self.active: dict[str, int] = {}
        self.num_steps = 0

    def add(self, loss: Tensor, values: Mapping[str, Tensor]) -> None:
        """Note one step."""
        self.steps.append({"total": loss.detach()} | {name: value.detach() for name, value in values.items()})
        for name, value in values.items():
            self.active[name] = self.active.get(name, 0) + value.requires_grad

    def close_epoch(self) -> None:
        """Fold the noted steps into the sums.

        Raises:
            FloatingPointError: if a value is not finite, naming client, round and term.
        """
        for step in self.steps:
            names = list(step)
            numbers = torch.stack([step[name].float() for name in names]).tolist()
            for name, number in sorted(zip(names, numbers, strict=True), key=lambda item: item[0] == "total"):
                if number != number or number in (float("inf"), float("-inf")):
                    raise FloatingPointError(
                        f"client {self.client}, round {self.round + 1}: the loss term {name} is {number}"
                    )
                self.sums[name] = self.sums.get(name, 0.0) + number
        self.num_steps += len(self.steps)
        self.steps = []

    def means(self) -> dict[str, float]:
        """Return the mean of every term over the steps; empty if no step was made."""
        return {name: total / self.num_steps for name, total in sorted(self.sums.items())}


def train_mode(client: FederatedClient, num_train: int) -> None:
    """Training mode; a client with a single sample keeps its batch normalisation in evaluation mode."""
    client.train()
    if num_train == 1:
        for module in client.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()


@dataclass(frozen=True)
class LocalTraining:
    """What a client does in its turn, with everything that is the same for all clients.

    Attributes:
        fabric: for precision and backward.
        channels: what travels, by name.
        callbacks: what happens beside losses and messages.
        predictors: prediction rules by name.
        plan: epochs, batches, order.
        stop: polled between steps; True abandons the round.
    """

    fabric: Fabric
    channels: Mapping[str, Channel]
    callbacks: Sequence[Callback]
    predictors: Mapping[str, Predictor]
    plan: LocalTrainingPlan
    stop: Callable[[], bool]

    def train(
        self,
        client_id: int,
        client: FederatedClient,
        loader: ClientDataLoader,
        broadcast: Mapping[str, Message | None],
        round: int,
    ) -> ClientResult:
        """Train one client for round ``round``: receive, E local epochs, send.

        Args:
            client_id: its id.
            client: bound to a copy of its state; ends with the trained one.
            loader: its data.
            broadcast: message by channel.
            round: index t.

        Raises:
            Interrupted: if ``stop`` says so.
            FloatingPointError: if a loss is not finite.
        """
        began = time.perf_counter()
        client.round = round
        self.receive(client, broadcast)
        log, waited = LossLog(client_id, round), 0.0
        order = torch_generator(self.plan.seed, "order", round, client_id)
        with seeded(self.plan.seed, "train", round, client_id):
            for channel in self.channels.values():
                channel.client.on_train_start(client, loader.clean_pass())
            for callback in self.callbacks:
                callback.on_train_start(client, loader.clean_pass())
            train_mode(client, loader.num_train)
            optimizer = client.configure_optimizers()
            for epoch in range(self.plan.local_epochs):
                waited += self._epoch(client, optimizer, loader, epoch, order, log)
            optimizer.zero_grad(set_to_none=True)
            for callback in self.callbacks:
                callback.on_train_end(client, loader.clean_pass())
            # A client that cannot train has nothing to say: its prototypes would be those of random weights.
            talking = self.channels if loader.has_batches else {}
            uploads = {name: channel.send(client, loader.clean_pass()) for name, channel in talking.items()}
        return ClientResult(
            client=client_id,
            uploads=uploads,
            num_samples=loader.num_train,
            num_batches=log.num_steps,
            losses=log.means(),
            active=log.active,
            seconds={"client": time.perf_counter() - began, "data": waited},
        )

    def introduce(
        self,
        client_id: int,
        client: FederatedClient,
        loader: ClientDataLoader,
        broadcast: Mapping[str, Message | None],
        channels: Sequence[str],
    ) -> ClientResult:
        """Let one client upload over some channels before round 0: receive, send, no training."""
        began = time.perf_counter()
        self.receive(client, broadcast)
        with seeded(self.plan.seed, "introduce", 0, client_id):
            for name in channels:
                self.channels[name].client.on_train_start(client, loader.clean_pass())
            uploads = {name: self.channels[name].send(client, loader.clean_pass()) for name in channels}
        seconds = {"client": time.perf_counter() - began, "data": 0.0}
        return ClientResult(client_id, uploads, loader.num_train, num_batches=0, losses={}, active={}, seconds=seconds)

    def evaluate(
        self, client: FederatedClient, loader: ClientDataLoader, broadcast: Mapping[str, Message | None]
    ) -> dict[str, int]:
        """Score one client on its own test part, every prediction rule in one pass; return the hits by rule."""
        self.receive(client, broadcast)
        client.eval()
        accuracy = ClientAccuracy(self.predictors, client.num_classes, client.device)
        with torch.inference_mode(), self.fabric.autocast():
            for x, y in loader.test_pass():
                z, logits = client(x)
                accuracy.update(client, z, logits, y)
        return accuracy.compute()

    def receive(self, client: FederatedClient, broadcast: Mapping[str, Message | None]) -> None:
        """Let every channel unpack its message, in the order of the channels."""
        for name, channel in self.channels.items():
            channel.client.receive(client, broadcast[name])

    def _epoch(
        self,
        client: FederatedClient,
        optimizer: torch.optim.Optimizer,
        loader: ClientDataLoader,
        epoch: int,
        order: torch.Generator,
        log: LossLog,
    ) -> float:
        """Run one local epoch; return the seconds spent waiting for data."""
        positions = (
            torch.randperm(loader.num_train, generator=order)
            if self.plan.shuffle == "each_epoch"
            else torch.arange(loader.num_train)
        )
        for callback in self.callbacks:
            positions = callback.select_samples(client, positions)
        waited, began = 0.0, time.perf_counter()
        for index, batch in enumerate(loader.train_pass(positions)):
            waited += time.perf_counter() - began
            if self.stop():
                raise Interrupted
            optimizer.zero_grad(set_to_none=True)
            with self.fabric.autocast():
                step = client.training_step(batch, index)
            self.fabric.backward(step["loss"])
            for callback in self.callbacks:
                callback.on_before_optimizer_step(client, optimizer)
            self.fabric.strategy.optimizer_step(optimizer)
            for callback in self.callbacks:
                callback.on_train_batch_end(client, optimizer)
            log.add(step["loss"], step["values"])
            for channel in self.channels.values():
                channel.client.on_train_batch_end(client, step["view"], epoch, self.plan.local_epochs)
            began = time.perf_counter()
        log.close_epoch()
        return waited
