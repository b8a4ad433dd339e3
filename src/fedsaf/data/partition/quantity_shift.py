"""Clients whose labels are alike: random shares of equal size, or of skewed sizes.

Dimension letters: n samples, N clients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsaf.data.partition.partitioner import Assignment, Partitioner, RedrawnPartitioner, Rng, check_clients


@dataclass(frozen=True, kw_only=True)
class IID(Partitioner):
    """Every client a random share of the same size, up to one sample."""

    def __call__(self, labels: np.ndarray, groups: np.ndarray | None, num_clients: int, rng: Rng) -> Assignment:
        """Cut one permutation into N pieces; N <= n."""
        check_clients(num_clients, len(labels), 1)
        return Assignment(np.array_split(rng.permutation(len(labels)), num_clients))


@dataclass(frozen=True, kw_only=True)
class QuantitySkew(RedrawnPartitioner):
    """Random shares whose sizes are n q with q ~ Dir(beta, ..., beta), as in NIID-Bench (Li et al., ICDE 2022).

    One permutation is drawn, then sizes until every client has the minimum. Cut points are floor(cumulative q * n). At
    a beta so small that q underflows, one client drawn at random holds everything, which is the limit of Dir(beta).

    Attributes:
        beta: concentration, > 0; small means few clients hold most samples.
    """

    beta: float

    def __call__(self, labels: np.ndarray, groups: np.ndarray | None, num_clients: int, rng: Rng) -> Assignment:
        """Draw sizes until every client is large enough, at most ``max_tries`` times."""
        n, least = len(labels), self.least("beta", len(labels), num_clients)
        order = rng.permutation(n)

        def draw() -> tuple[np.ndarray, np.ndarray, bool]:
            q = rng.dirichlet(np.full(num_clients, self.beta))
            if not q.sum() > 0:
                q = (np.arange(num_clients) == rng.permutation(num_clients)[0]).astype(float)
            sizes = np.diff((np.cumsum(q / q.sum()) * n).astype(int)[:-1], prepend=0, append=n)
            return sizes, sizes, True

        sizes, tries = self.best(draw, least, self.max_tries, "beta")
        moved = _level(sizes, least)
        return Assignment(np.split(order, np.cumsum(sizes)[:-1]), tries, moved)


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
