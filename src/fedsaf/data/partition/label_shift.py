"""Label shift: clients differ in which classes they hold.

Dimension letters: n samples, N clients, C classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedsaf.data.partition.partitioner import (
    Assignment,
    Partitioner,
    RedrawnPartitioner,
    Rng,
    check_clients,
    check_count,
    min_client_size,
)

MAX_SHARES = 20_000_000
"""Class shares (clients x classes x draws) after which ``Dirichlet`` tries no further, whatever ``max_tries`` says.

A share takes 0.1 to 0.2 microseconds; so 1,000 clients of 100 classes give up after 200 draws, in seconds, and all
settings up to 20,000 clients x classes are granted 1,000 draws.
"""


@dataclass(frozen=True, kw_only=True)
class Pathological(Partitioner):
    """Every client ``classes_per_client`` classes, shared in fixed groups of clients.

    Class by class, the first ceil(N q / C) clients with quota left share the samples, taken in pooled order. With
    N q not a multiple of C the last classes may find no client, and their samples stay unused.

    Attributes:
        classes_per_client: q, in 1..C.
        balanced: equal shares of a class; otherwise each share but the last is a uniform integer between a tenth of
            the equal share (at least ``min_samples`` / C) and the equal share.
        min_samples: size a client should have; see `min_client_size`.
    """

    classes_per_client: int
    balanced: bool
    min_samples: int

    def __call__(self, labels: np.ndarray, groups: np.ndarray | None, num_clients: int, rng: Rng) -> Assignment:
        """Share out class after class."""
        check_clients(num_clients, len(labels), 1)
        classes = np.unique(labels)
        check_count("classes_per_client", self.classes_per_client, 1)
        check_count("min_samples", self.min_samples, 0)
        if not 1 <= self.classes_per_client <= len(classes):
            raise ValueError(f"partition.classes_per_client={self.classes_per_client} must be in 1..{len(classes)}")
        takers = math.ceil(num_clients * self.classes_per_client / len(classes))
        quota = np.full(num_clients, self.classes_per_client)
        least = min_client_size(len(labels), num_clients, self.min_samples) / len(classes)
        pieces: list[list[np.ndarray]] = [[] for _ in range(num_clients)]
        without = 0
        for given, c in enumerate(classes):
            chosen = np.flatnonzero(quota)[:takers]
            if len(chosen) == 0:
                without = len(classes) - given
                break
            quota[chosen] -= 1
            samples = np.flatnonzero(labels == c)
            if len(samples) < len(chosen):
                raise ValueError(
                    f"class {c} has {len(samples)} samples for {len(chosen)} clients; "
                    f"lower num_clients={num_clients} or partition.classes_per_client={self.classes_per_client}"
                )
            cuts = np.cumsum(self._shares(len(samples), len(chosen), least, rng))
            for client, piece in zip(chosen, np.split(samples, cuts), strict=True):
                pieces[client].append(piece)
        left_out = {"classes, as no client may take another": without}
        return Assignment([np.concatenate(piece) for piece in pieces], left_out=left_out)

    def _shares(self, size: int, takers: int, least: float, rng: Rng) -> np.ndarray:
        """Return the sizes of all shares of a class but the last."""
        equal = size / takers
        low = max(int(max(equal / 10, least)), 1)
        if self.balanced or takers == 1 or low >= int(equal):
            return np.full(takers - 1, int(equal))
        draw = rng.randint if isinstance(rng, np.random.RandomState) else rng.integers
        return draw(low, int(equal), takers - 1)


@dataclass(frozen=True, kw_only=True)
class Dirichlet(RedrawnPartitioner):
    """Label shift Dir(alpha), with the cap of the public generators.

    For each class: shuffle it, draw p ~ Dirichlet(alpha, ..., alpha) of length N, set p_j = 0 for clients that hold
    n/N samples already, renormalise, cut at floor(cumulative p * n_k). A draw counts if every client has the minimum
    and no class met full clients only (it is then spread evenly over the others). The repair hands over samples of the
    giver's most frequent class first. There are fewer tries for very many clients and classes, see ``MAX_SHARES``.

    Attributes:
        alpha: concentration, > 0; small means few classes per client.
    """

    alpha: float

    def __call__(self, labels: np.ndarray, groups: np.ndarray | None, num_clients: int, rng: Rng) -> Assignment:
        """Draw until every client is large enough, at most ``max_tries`` times and within ``MAX_SHARES``."""
        least = self.least("alpha", len(labels), num_clients)
        by_class = [np.flatnonzero(labels == c) for c in np.unique(labels)]
        limit = max(min(self.max_tries, MAX_SHARES // (num_clients * len(by_class))), 1)
        pieces, tries = self.best(lambda: self._draw(by_class, num_clients, rng), least, limit, "alpha")
        indices = [np.concatenate(own) for own in zip(*(np.split(s, cuts) for s, cuts in pieces), strict=True)]
        moved = _fill_small_clients(indices, labels, least)
        return Assignment(indices, tries, moved)

    def _draw(
        self, by_class: list[np.ndarray], num_clients: int, rng: Rng
    ) -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray, bool]:
        """Return the shuffled samples and cut points of each class, the client sizes, and whether the draw is valid."""
        cap = sum(map(len, by_class)) / num_clients
        sizes, pieces, valid = np.zeros(num_clients, np.int64), [], True
        for members in by_class:
            samples = members.copy()
            rng.shuffle(samples)
            p = np.where(sizes < cap, rng.dirichlet(np.full(num_clients, self.alpha)), 0.0)
            if not p.sum() > 0:  # zero, or NaN from an underflow at tiny alpha
                p, valid = (sizes < cap).astype(float), False
            cuts = (np.cumsum(p / p.sum()) * len(samples)).astype(int)[:-1]
            sizes += np.diff(cuts, prepend=0, append=len(samples))
            pieces.append((samples, cuts))
        return pieces, sizes, valid


def _fill_small_clients(indices: list[np.ndarray], labels: np.ndarray, least: int) -> int:
    """Move samples, in place, until no client is below ``least``; return how many.

    Ends because the largest client holds at least n/N >= 2 ``least`` samples, so it never falls below ``least``.
    """
    moved = 0
    for client in range(len(indices)):
        while (need := least - len(indices[client])) > 0:
            giver = int(np.argmax([len(own) for own in indices]))
            classes, counts = np.unique(labels[indices[giver]], return_counts=True)
            given = np.flatnonzero(labels[indices[giver]] == classes[np.argmax(counts)])[-need:]
            indices[client] = np.concatenate([indices[client], indices[giver][given]])
            indices[giver] = np.delete(indices[giver], given)
            moved += len(given)
    return moved
