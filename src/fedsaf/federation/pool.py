"""Clients between and at their turns: states wait in a store, one workbench per architecture does the work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from fedsaf.core.seeding import seeded
from fedsaf.federation.client import FederatedClient
from fedsaf.federation.method import Method
from fedsaf.models.context import ModelContext

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
        models: which architecture each client has, for which images and classes.
        method: objective, auxiliary and answer, shared by all clients and without state.
        optimizer: builds an optimiser from parameter groups.
        rounds: T.
        batch_size: B, which decides the memory layout.
        seed: run seed.
        initialisation: ``independent`` (every client its own draw), ``per_architecture`` (clients of one architecture
            start alike) or ``public`` (that, and the same for every run seed).
    """

    models: ModelContext
    method: Method
    optimizer: Callable[[list[dict[str, Any]]], Optimizer]
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
        return self.models.group.init_key(client)

    def build(self, client: int) -> FederatedClient:
        """Return the client with the weights of its keyed initial draw."""
        seed, purpose, index = INITIALISATIONS[self.initialisation](self.seed, client, self.kind(client))
        return self._build(client, (seed, purpose, index))

    def template(self) -> FederatedClient:
        """Return a client of the first architecture from a draw of its own: what the server starts from."""
        return self._build(0, (self.seed, "initialise-server", 0))

    def _build(self, client: int, draw: tuple[int, str, int]) -> FederatedClient:
        seed, purpose, index = draw
        context, method = self.models, self.method
        with seeded(seed, purpose, 0, index):
            model = context.group.build(client, context.num_classes, context.inputs)
        auxiliary = {}
        for name, builder in method.auxiliary.items():
            with seeded(seed, f"companion-{name}", 0, 0 if builder.shared else client):
                auxiliary[name] = builder.build(context, client)
        module = FederatedClient(
            model=model,
            objective=method.objective,
            optimizer=self.optimizer,
            num_classes=context.num_classes,
            feature_dim=context.group.feature_dim,
            rounds=self.rounds,
            auxiliary=auxiliary,
            learning_rates={n: c.lr for n, c in method.auxiliary.items() if c.lr is not None},
            forward_rule=method.forward_rule,
        )
        return module.to(memory_format=context.group.memory_format_of(client, self.batch_size))


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
