"""Which sample goes to which client: labels or group ids in, one index list per client out.

Only ``shuffle``, ``permutation``, ``dirichlet`` and bounded integers are drawn, which NumPy's ``Generator`` and its
legacy ``RandomState`` both offer; so one implementation serves our default and, draw for draw, the public generator
of the papers. Dimension letters: n samples, N clients, C classes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from fedsaf.seeding import numpy_generator

Rng = np.random.Generator | np.random.RandomState


@dataclass(frozen=True)
class Assignment:
    """The outcome of a partition rule.

    Attributes:
        indices: one array of sample indices per client, disjoint.
        tries: draws made until one was accepted.
        moved: samples that the repair handed to another client.
    """

    indices: list[np.ndarray]
    tries: int = 1
    moved: int = 0


@dataclass(frozen=True, kw_only=True)
class Partitioner(ABC):
    """A partition rule.

    Attributes:
        seed: partition seed; the run seed never enters.
        generator: ``numpy`` for NumPy's Generator; ``public`` for the legacy stream of the published configurations.
    """

    seed: int
    generator: str

    @abstractmethod
    def __call__(self, labels: np.ndarray, groups: np.ndarray | None, num_clients: int, rng: Rng) -> Assignment:
        """Assign the samples.

        Args:
            labels: (n,) class ids.
            groups: (n,) group ids, or None.
            num_clients: N.
            rng: usually ``self.rng()``; the 75/25 split goes on drawing from it.

        Raises:
            ValueError: the rule cannot serve N clients from these samples.
        """

    def rng(self) -> Rng:
        """Return a fresh generator of the chosen kind."""
        if self.generator == "public":
            return np.random.RandomState(self.seed)
        if self.generator == "numpy":
            return numpy_generator(self.seed, "partition")
        raise ValueError(f"partition.generator={self.generator!r} is unknown; choose numpy or public")


@dataclass(frozen=True, kw_only=True)
class IID(Partitioner):
    """Every client a random share of the same size, up to one sample."""

    def __call__(self, labels: np.ndarray, groups: np.ndarray | None, num_clients: int, rng: Rng) -> Assignment:
        """Cut one permutation into N pieces; N <= n."""
        _check_clients(num_clients, len(labels), 1)
        return Assignment(np.array_split(rng.permutation(len(labels)), num_clients))


@dataclass(frozen=True, kw_only=True)
class ByGroup(Partitioner):
    """Feature shift: client i holds group i, such as one domain."""

    def __call__(self, labels: np.ndarray, groups: np.ndarray | None, num_clients: int, rng: Rng) -> Assignment:
        """List each group's samples in pooled order; nothing is drawn."""
        if groups is None:
            raise ValueError("partition=by_group needs groups: choose a data set with domains, or dataset.group_column")
        present = np.unique(groups)
        if num_clients != len(present):
            raise ValueError(f"num_clients={num_clients} but the data set has {len(present)} groups; set them equal")
        return Assignment([np.flatnonzero(groups == group) for group in present])


@dataclass(frozen=True, kw_only=True)
class Pathological(Partitioner):
    """Every client ``classes_per_client`` classes, shared in fixed groups of clients.

    Class by class, the first ceil(N q / C) clients with quota left share the samples, taken in pooled order. With
    N q not a multiple of C the last classes may find no client, and their samples stay unused.

    Attributes:
        classes_per_client: q, in 1..C.
        balanced: equal shares of a class; otherwise each share but the last is a uniform integer between a tenth of
            the equal share (at least ``min_samples`` / C) and the equal share.
        min_samples: size a client should have; see ``min_client_size``.
    """

    classes_per_client: int
    balanced: bool
    min_samples: int

    def __call__(self, labels: np.ndarray, groups: np.ndarray | None, num_clients: int, rng: Rng) -> Assignment:
        """Share out class after class."""
        _check_clients(num_clients, len(labels), 1)
        classes = np.unique(labels)
        if not 1 <= self.classes_per_client <= len(classes):
            raise ValueError(f"partition.classes_per_client={self.classes_per_client} must be in 1..{len(classes)}")
        takers = math.ceil(num_clients * self.classes_per_client / len(classes))
        quota = np.full(num_clients, self.classes_per_client)
        least = min_client_size(len(labels), num_clients, self.min_samples) / len(classes)
        pieces: list[list[np.ndarray]] = [[] for _ in range(num_clients)]
        for c in classes:
            chosen = np.flatnonzero(quota)[:takers]
            if len(chosen) == 0:
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
        return Assignment([np.concatenate(piece) for piece in pieces])

    def _shares(self, size: int, takers: int, least: float, rng: Rng) -> np.ndarray:
        """Return the sizes of all shares of a class but the last."""
        equal = size / takers
        low = max(int(max(equal / 10, least)), 1)
        if self.balanced or takers == 1 or low >= int(equal):
            return np.full(takers - 1, int(equal))
        draw = rng.randint if isinstance(rng, np.random.RandomState) else rng.integers
        return draw(low, int(equal), takers - 1)


@dataclass(frozen=True, kw_only=True)
class Dirichlet(Partitioner):
    """Label shift Dir(alpha), with the cap of the public generators.

    For each class: shuffle it, draw p ~ Dirichlet(alpha, ..., alpha) of length N, set p_j = 0 for clients that hold
    n/N samples already, renormalise, cut at floor(cumulative p * n_k). A draw counts if every client has
    ``min_client_size`` samples and no class met full clients only (it is then spread evenly over the others).

    Attributes:
        alpha: concentration, > 0; small means few classes per client.
        min_samples: size a client must have; see ``min_client_size``.
        max_tries: draws before giving up or repairing.
        repair: after the last try take the draw with the largest smallest client, and hand clients below the minimum
            samples of the largest clients, from the giver's most frequent class first. False raises instead.
    """

    alpha: float
    min_samples: int
    max_tries: int
    repair: bool

    def __call__(self, labels: np.ndarray, groups: np.ndarray | None, num_clients: int, rng: Rng) -> Assignment:
        """Draw until every client is large enough, at most ``max_tries`` times."""
        if not (self.alpha > 0 and math.isfinite(self.alpha)):
            raise ValueError(f"partition.alpha={self.alpha} must be a positive number, such as 0.1")
        if self.max_tries < 1:
            raise ValueError(f"partition.max_tries={self.max_tries} must be at least 1")
        _check_clients(num_clients, len(labels), 2)
        least = min_client_size(len(labels), num_clients, self.min_samples)
        by_class = [np.flatnonzero(labels == c) for c in np.unique(labels)]
        best, best_size, invalid = None, -1, 0
        for tries in range(1, self.max_tries + 1):
            pieces, sizes, valid = self._draw(by_class, num_clients, rng)
            if valid and sizes.min() >= least:
                return Assignment(_lists(pieces), tries)
            invalid += not valid
            if sizes.min() > best_size:
                best, best_size = pieces, int(sizes.min())
        if not self.repair:
            raise ValueError(
                f"no Dir({self.alpha}) draw in {self.max_tries} gave each of {num_clients} clients {least} of the "
                f"{len(labels)} samples; the best smallest client had {best_size}, and {invalid} draws met full "
                "clients only. Raise partition.alpha, lower num_clients or partition.min_samples, or set "
                "partition.repair=true"
            )
        indices = _lists(best)
        moved = _fill_small_clients(indices, labels, least)
        return Assignment(indices, self.max_tries, moved)

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


def min_client_size(num_samples: int, num_clients: int, min_samples: int) -> int:
    """Return floor(min(min_samples, n / N / 2)), the size below which a client is too small.

    >>> min_client_size(60000, 20, 40), min_client_size(2000, 200, 40)
    (40, 5)
    """
    return int(min(min_samples, num_samples / num_clients / 2))


def _check_clients(num_clients: int, num_samples: int, each: int) -> None:
    if num_clients < 1:
        raise ValueError(f"num_clients={num_clients} must be at least 1")
    if num_samples < num_clients * each:
        raise ValueError(
            f"num_clients={num_clients} is too many for {num_samples} samples at {each} or more per client; "
            f"the most is {num_samples // each}"
        )


def _lists(pieces: list[tuple[np.ndarray, np.ndarray]]) -> list[np.ndarray]:
    return [np.concatenate(own) for own in zip(*(np.split(s, cuts) for s, cuts in pieces), strict=True)]


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
