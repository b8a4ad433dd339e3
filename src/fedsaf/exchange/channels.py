"""Client halves of channels: how one client turns a message into what it trains with, and its result into a message."""

from __future__ import annotations

from typing import Any

import torch

from fedsaf.core.contracts import Batches, Client, ClientChannel
from fedsaf.core.types import Message, StepView
from fedsaf.prototypes.class_means import ClassMeans
from fedsaf.prototypes.class_table import ClassTable

COLLECTIONS = ("clean", "running_all", "running_last", "stale")


class PrototypeChannel(ClientChannel):
    """Local prototypes up (FedSAF Eq. (2)), global prototypes down.

    Args:
        channel: name under which the received `ClassTable` appears in the client's ``received``.
        collect: ``clean`` averages the features of a pass in evaluation mode after training; ``running_all`` those met
            in training mode during all local epochs of the round, ``running_last`` during the last one; ``stale`` those
            of an evaluation pass *before* training (register entry D2).

    A class that no sample showed (absent, or only in dropped batches) is not uploaded.
    """

    def __init__(self, channel: str, collect: str) -> None:
        if collect not in COLLECTIONS:
            raise ValueError(f"prototype collection {collect!r} is unknown; choose one of {', '.join(COLLECTIONS)}")
        self.channel, self.when = channel, collect

    def receive(self, client: Client, message: Message | None) -> None:
        """Scatter the rows that exist into a (C, d) table; None clears it."""
        if message is None:
            client.received.pop(self.channel, None)
            return
        client.received[self.channel] = ClassTable.from_message(message, client.num_classes, client.device)

    def on_train_start(self, client: Client, batches: Batches) -> None:
        """Start the running sums, or take the stale means now."""
        means = ClassMeans(client.num_classes, client.feature_dim)
        if self.when == "stale":
            self._pass(client, batches, means)
        client.scratch[self.channel] = means

    def on_train_batch_end(self, client: Client, step: StepView, epoch: int, epochs: int) -> None:
        """Add the features of one training step to the running sums, if they are wanted."""
        if self.when == "running_all" or (self.when == "running_last" and epoch == epochs - 1):
            client.scratch[self.channel].add(step.z.detach(), step.y)

    def send(self, client: Client, batches: Batches) -> Message:
        """Return ``labels`` (K,), ``values`` (K, d) and ``counts`` (K,) of the classes this client saw."""
        means = client.scratch.pop(self.channel)
        if self.when == "clean":
            self._pass(client, batches, means)
        return means.compute().to_message()

    @staticmethod
    def _pass(client: Client, batches: Any, means: ClassMeans) -> None:
        """Add the features of the whole training part, in evaluation mode and without gradient."""
        client.eval()
        with torch.inference_mode():
            for x, y in batches:
                z, _ = client(x)
                means.add(z, y)
