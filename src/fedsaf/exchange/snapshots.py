"""Hooks that keep models and prototypes as they were at the start or the end of a client's turn."""

from __future__ import annotations

from typing import Any

import torch

from fedsaf.core.types import ClassTable
from fedsaf.exchange.hooks import NoHook
from fedsaf.models.frozen import Frozen
from fedsaf.prototypes.statistics import ClassMeans

FIRST = ("independent", "global")


class ReceivedModel(NoHook):
    """Keeps the model that a client starts its round from, w_t of FedProx, SCAFFOLD and MOON.

    Args:
        name: under which terms and other hooks find the `Frozen` copy in the client's ``scratch``.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def begin(self, client: Any, batches: Any) -> None:
        """Copy the model before the first step."""
        client.scratch[self.name] = Frozen.copy_of(client.model)


class PreviousModel(NoHook):
    """Keeps the model that a client ends its round with until its next participation, MOON.

    Args:
        companion: name of the `FrozenTwin` that holds it, and with it travels into the client's state and checkpoint.
        first: what stands there at the first participation: ``independent``, the twin's own random weights, or
            ``global``, the received model, with which the contrast is constant (register entry D19).
    """

    def __init__(self, companion: str, first: str) -> None:
        if first not in FIRST:
            raise ValueError(f"the first previous model is {first!r}; choose {' or '.join(FIRST)}")
        self.companion, self.first = companion, first

    def begin(self, client: Any, batches: Any) -> None:
        """At a first participation, put the received model there if that is asked for."""
        previous = client.companions[self.companion]
        if self.first == "global" and not previous.taken:
            previous.take(client.model)

    def end(self, client: Any, batches: Any) -> None:
        """Keep the trained model."""
        client.companions[self.companion].take(client.model)


class PrototypeTargets(NoHook):
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

    def begin(self, client: Any, batches: Any) -> None:
        """Replace the received table for this round, if own prototypes are asked for."""
        if self.source == "global":
            return
        means = ClassMeans(client.num_classes, client.feature_dim)
        client.eval()
        with torch.no_grad():
            for x, y in batches:
                means.add(client(x)[0], y)
        statistics = means.compute()
        values = torch.zeros(client.num_classes, client.feature_dim)
        values[statistics.labels] = statistics.means
        mask = torch.zeros(client.num_classes, dtype=torch.bool)
        mask[statistics.labels] = True
        client.received[self.channel] = ClassTable(values.to(client.device), mask.to(client.device))
