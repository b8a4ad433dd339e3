"""Hooks that keep models and prototypes as they were at the start or the end of a client's turn."""

from __future__ import annotations

import torch

from fedsaf.core.contracts import Batches, Callback, Client
from fedsaf.models.frozen import Frozen
from fedsaf.prototypes.class_means import ClassMeans
from fedsaf.prototypes.class_table import ClassTable

FIRST = ("independent", "global")


class ReceivedModel(Callback):
    """Keeps the model that a client starts its round from, w_t of FedProx, SCAFFOLD and MOON.

    Args:
        name: under which terms and other callbacks find the `Frozen` copy in the client's ``scratch``.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def on_train_start(self, client: Client, batches: Batches) -> None:
        """Copy the model before the first step."""
        client.scratch[self.name] = Frozen.copy_of(client.model)


class PreviousModel(Callback):
    """Keeps the model that a client ends its round with until its next participation, MOON.

    Args:
        auxiliary: name of the `FrozenTwin` that holds it, and with it travels into the client's state and checkpoint.
        first: what stands there at the first participation: ``independent``, the twin's own random weights, or
            ``global``, the received model, with which the contrast is constant (register entry D19).
    """

    def __init__(self, auxiliary: str, first: str) -> None:
        if first not in FIRST:
            raise ValueError(f"the first previous model is {first!r}; choose {' or '.join(FIRST)}")
        self.auxiliary, self.first = auxiliary, first

    def on_train_start(self, client: Client, batches: Batches) -> None:
        """At a first participation, put the received model there if that is asked for."""
        previous = client.auxiliary[self.auxiliary]
        if self.first == "global" and not previous.taken:
            previous.take(client.model)

    def on_train_end(self, client: Client, batches: Batches) -> None:
        """Keep the trained model."""
        client.auxiliary[self.auxiliary].take(client.model)


class PrototypeTargets(Callback):
    """Chooses the prototypes that a client trains against.

    Args:
        channel: of the prototypes.
        source: ``global``, those received; ``own``, the client's class means under the received model instead, which
            is Algorithm 1 of FedProc, line 18, read literally.
    """

    def __init__(self, channel: str, source: str) -> None:
        if source not in ("global", "own"):
            raise ValueError(f"prototype targets are {source!r}; choose global or own")
        self.channel, self.source = channel, source

    def on_train_start(self, client: Client, batches: Batches) -> None:
        """Replace the received table for this round, if own prototypes are asked for."""
        if self.source == "global":
            return
        means = ClassMeans(client.num_classes, client.feature_dim)
        client.eval()
        with torch.no_grad():
            for x, y in batches:
                means.add(client(x)[0], y)
        table = means.compute()
        client.received[self.channel] = ClassTable(table.values.to(client.device), table.mask.to(client.device))
