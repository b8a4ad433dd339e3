"""Clients between and at their turns: states wait in a store, one workbench per architecture does the work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fedsaf.federation.client import FederatedClient
from fedsaf.models.groups import ModelGroup
from fedsaf.objective.objective import Objective
from fedsaf.seeding import seeded

INITIALISATIONS: dict[str, Callable[[int, int, int], tuple[int, str, int]]] = {
    "independent": lambda seed, client, kind: (seed, "initialise", client),
    "per_architecture": lambda seed, client, kind: (seed, "initialise-architecture", kind),
    "public": lambda seed, client, kind: (0, "initialise-public", 0),
}
"""Register entry D1: (run seed, client, architecture index) -> the coordinates of the draw of the initial weights."""


@dataclass(frozen=True)
class ClientFactory:
    """Builds clients with their initial weights; a pure function of seed and client id.

    Attributes:
        group: which architecture each client has.
        objective: shared by all clients, without state.
        optimizer: builds an optimiser from parameters.
        num_classes: C.
        channels: of the images.
        image_size: in pixels.
        rounds: T.
        batch_size: B, which decides the memory layout.
        seed: run seed.
        initialisation: ``independent`` (every client its own draw), ``per_architecture`` (clients of one architecture
            start alike) or ``public`` (that, and the same for every run seed).
    """

    group: ModelGroup
    objective: Objective
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer]
    num_classes: int
    channels: int
    image_size: int
    rounds: int
    batch_size: int
    seed: int
    initialisation: str

    def __post_init__(self) -> None:
        if self.initialisation not in INITIALISATIONS:
            raise ValueError(
                f"initialisation {self.initialisation!r} is unknown; choose one of {', '.join(INITIALISATIONS)}"
            )

    def kind(self, client: int) -> Any:
        """Return what two clients must share to take turns on one workbench."""
        return self.group.init_key(client)

    def build(self, client: int) -> FederatedClient:
        """Return the client with the weights of its keyed initial draw."""
        seed, purpose, index = INITIALISATIONS[self.initialisation](self.seed, client, self.kind(client))
        with seeded(seed, purpose, 0, index):
            model = self.group.build(client, self.num_classes, self.channels, self.image_size)
        module = FederatedClient(
            model=model.to(memory_format=self.group.memory_format_of(client, self.batch_size)),
            objective=self.objective,
            optimizer=self.optimizer,
            num_classes=self.num_classes,
            feature_dim=self.group.feature_dim,
            rounds=self.rounds,
            companions={},
        )
        module.num_parameters = sum(p.numel() for p in module.parameters())
        return module


class ClientPool:
    """Hands out clients bound to a workbench on the device, and keeps their states between turns.

    A round is a transaction: `borrow_for_training` works on a copy, `keep` notes the trained state as pending, and only
    `commit` makes it the client's state; `abandon` forgets it. So an interrupted round leaves no trace.

    Args:
        factory: builds clients.
        store: an empty mapping from client id to state.
        device: where clients work.
    """

    def __init__(
        self, factory: ClientFactory, store: MutableMapping[int, dict[str, Tensor]], device: torch.device
    ) -> None:
        self.factory, self.store, self.device = factory, store, device
        self._benches: dict[Any, FederatedClient] = {}
        self._pending: dict[int, dict[str, Tensor]] = {}

    def borrow(self, client: int, for_training: bool) -> FederatedClient:
        """Return the client on its workbench; valid until the next call for the same architecture.

        Args:
            client: client id.
            for_training: work on a copy of the state, so that the store keeps the former one.
        """
        kind = self.factory.kind(client)
        if client not in self.store:
            fresh = self.factory.build(client)
            self.store[client] = fresh.export_state()
            if kind not in self._benches:
                self._benches[kind] = fresh.to(self.device)
        elif kind not in self._benches:
            self._benches[kind] = self.factory.build(client).to(self.device)
        bench = self._benches[kind]
        bench.bind(self.store[client], copy=for_training)
        return bench

    def keep(self, client: int, module: FederatedClient) -> None:
        """Note the state of a client that has finished its round."""
        self._pending[client] = module.export_state()

    def commit(self, except_for: Iterable[int]) -> list[int]:
        """Make all pending states the clients' states; return whose changed."""
        for client in except_for:
            self._pending.pop(client, None)
        changed = sorted(self._pending)
        self.store.update(self._pending)
        self._pending = {}
        return changed

    def abandon(self) -> None:
        """Forget the round at work."""
        self._pending = {}

    def restore(self, client: int, state: Mapping[str, Tensor]) -> None:
        """Put back a state from a checkpoint."""
        self.store[client] = dict(state)
