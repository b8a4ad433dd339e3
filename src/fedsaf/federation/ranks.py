"""Which rank works for which client, and how results come home in the order of client ids."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch.distributed as dist
from lightning.fabric import Fabric

Result = TypeVar("Result")
Shared = TypeVar("Shared")


@dataclass(frozen=True)
class Failure:
    """A client that raised: which, what it said, and where."""

    client: int
    message: str
    trace: str


class ClientError(RuntimeError):
    """A client raised, or its loss was not finite; the message names client, round and, if it is a loss, the term."""


def assign_owners(costs: Mapping[int, float], num_ranks: int) -> dict[int, int]:
    """Give every client a fixed rank, so that the most loaded rank has little more than its share.

    Longest processing time first; ties by client id. The assignment never changes a result, only the time it takes.

    >>> assign_owners({0: 3.0, 1: 2.0, 2: 2.0, 3: 1.0}, 2)
    {0: 0, 1: 1, 2: 1, 3: 0}
    """
    load = [0.0] * num_ranks
    owners: dict[int, int] = {}
    for client in sorted(costs, key=lambda c: (-costs[c], c)):
        rank = min(range(num_ranks), key=lambda r: (load[r], r))
        owners[client] = rank
        load[rank] += costs[client]
    return dict(sorted(owners.items()))


class Ranks:
    """Runs a task for client ids, each on the rank that owns it.

    Args:
        fabric: launched Fabric; one rank is the sequential case.
        owners: client id to rank.
    """

    def __init__(self, fabric: Fabric, owners: Mapping[int, int]) -> None:
        self.fabric, self.owners = fabric, dict(owners)

    @property
    def is_zero(self) -> bool:
        """Whether this rank holds the server, the records and the mirror."""
        return self.fabric.global_rank == 0

    def own(self, clients: Sequence[int]) -> list[int]:
        """Return those of the clients that this rank owns, in order."""
        return [client for client in clients if self.owners[client] == self.fabric.global_rank]

    def share(self, value: Shared | None) -> Shared:
        """Return rank zero's value on every rank."""
        if self.fabric.world_size == 1:
            return value  # type: ignore[return-value]
        box = [value]
        dist.broadcast_object_list(box, src=0, device=self.fabric.device if self._needs_device else None)
        return box[0]  # type: ignore[return-value]

    def gather(self, value: Shared) -> list[Shared]:
        """Return every rank's value, by rank, on rank zero; an empty list elsewhere."""
        if self.fabric.world_size == 1:
            return [value]
        boxes: list[Any] | None = [None] * self.fabric.world_size if self.is_zero else None
        dist.gather_object(value, boxes, dst=0)
        return boxes or []

    def map(self, task: Callable[[int], Result], clients: Sequence[int]) -> tuple[dict[int, Result], list[Failure]]:
        """Run ``task`` for each client on its owner.

        Returns:
            On rank zero the results by ascending client id, elsewhere an empty dict; and on every rank the failures of
            all ranks, by client id.
        """
        results: dict[int, Result] = {}
        failures: list[Failure] = []
        for client in self.own(clients):
            try:
                results[client] = task(client)
            except Exception as error:  # noqa: BLE001 - reported with client and trace, and decided on by the caller
                failures.append(Failure(client, f"{type(error).__name__}: {error}", traceback.format_exc()))
        gathered = self.gather((results, failures))
        merged = {client: result for part, _ in gathered for client, result in part.items()}
        failed = self.share(sorted((f for _, part in gathered for f in part), key=lambda f: f.client))
        return dict(sorted(merged.items())), failed

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set on any rank."""
        return self.share(any(self.gather(flag)))

    @property
    def _needs_device(self) -> bool:
        return dist.get_backend() == "nccl"
