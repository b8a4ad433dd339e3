"""Clients whose labels are alike: random shares of equal size, or of skewed sizes.

Dimension letters: n samples, N clients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsaf.data.partition.partitioner import (
    Assignment,
    Partitioner,
    Rng,
    check_clients,
    check_concentration,
    check_count,
    min_client_size,
)


@dataclass(frozen=True, kw_only=True)
class IID(Partitioner):
    """Every client a random share of the same size, up to one sample."""

    def __call__(self, labels: np.ndarray, groups: np.ndarray | None, num_clients: int, rng: Rng) -> Assignment:
        """Cut one permutation into N pieces; N <= n."""
        check_clients(num_clients, len(labels), 1)
        return Assignment(np.array_split(rng.permutation(len(labels)), num_clients))


@dataclass(frozen=True, kw_only=True)
class QuantitySkew(Partitioner):
    """Random shares whose sizes are n q with q ~ Dir(beta, ..., beta), as in NIID-Bench (Li et al., ICDE 2022).

    One permutation is drawn, then sizes until every client has ``min_client_size`` samples. Cut points are
    floor(cumulative q * n). At a beta so small that q underflows, one client drawn at random holds everything, which
    is the limit of Dir(beta).

    Attributes:
        beta: concentration, > 0; small means few clients hold most samples.
        min_samples: size a client must have; see ``min_client_size``.
        max_tries: draws of q before giving up or repairing.
        repair: after the last try take the draw with the largest smallest client, and raise the small clients to the
            minimum at the cost of the largest. False raises ValueError instead.
    """

    beta: float
    min_samples: int
    max_tries: int
    repair: bool

    def __call__(self, labels: np.ndarray, groups: np.ndarray | None, num_clients: int, rng: Rng) -> Assignment:
        """Draw sizes until every client is large enough, at most ``max_tries`` times."""
        check_concentration("beta", self.beta)
        check_count("max_tries", self.max_tries, 1)
        check_count("min_samples", self.min_samples, 0)
        check_clients(num_clients, len(labels), 2)
        least = min_client_size(len(labels), num_clients, self.min_samples)
        order = rng.permutation(len(labels))
        best = np.full(num_clients, -1)
        for tries in range(1, self.max_tries + 1):
            sizes = self._sizes(len(labels), num_clients, rng)
            if sizes.min() > best.min():
                best = sizes
            if best.min() >= least:
                return Assignment(np.split(order, np.cumsum(best)[:-1]), tries)
        if not self.repair:
            raise ValueError(
                f"no Dir({self.beta}) draw of sizes in {self.max_tries} gave each of {num_clients} clients {least} of "
                f"the {len(labels)} samples; the best smallest client had {best.min()}. Raise partition.beta, lower "
                "num_clients or partition.min_samples, or set partition.repair=true"
            )
        moved = _level(best, least)
        return Assignment(np.split(order, np.cumsum(best)[:-1]), self.max_tries, moved)

    def _sizes(self, num_samples: int, num_clients: int, rng: Rng) -> np.ndarray:
        q = rng.dirichlet(np.full(num_clients, self.beta))
        if not q.sum() > 0:
            q = (np.arange(num_clients) == rng.permutation(num_clients)[0]).astype(float)
        cuts = (np.cumsum(q / q.sum()) * num_samples).astype(int)[:-1]
        return np.diff(cuts, prepend=0, append=num_samples)


def _level(sizes: np.ndarray, least: int) -> int:
    """Raise sizes below ``least`` to it, in place, at the cost of the largest; return how much was moved.

    Ends because the largest holds at least n/N >= 2 ``least``; a giver keeps ``least``.
    """
    moved = 0
    for client in range(len(sizes)):
        while (need := least - sizes[client]) > 0:
            giver = int(np.argmax(sizes))
            given = min(need, sizes[giver] - least)
            sizes[client] += given
            sizes[giver] -= given
            moved += int(given)
    return moved
