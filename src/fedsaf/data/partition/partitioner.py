"""Which sample goes to which client: labels or group ids in, one index list per client out.

This file is the contract; the rules are in ``quantity_shift``, ``label_shift`` and ``group_shift``. Only ``shuffle``,
``permutation``, ``dirichlet`` and bounded integers are drawn, which NumPy's ``Generator`` and its legacy
``RandomState`` both offer; so one implementation serves our default and, draw for draw, the public generator of the
papers. Dimension letters: n samples, N clients, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from fedsaf.core.seeding import numpy_generator

Rng = np.random.Generator | np.random.RandomState
Draw = TypeVar("Draw")


@dataclass(frozen=True)
class Assignment:
    """The outcome of a partition rule.

    Attributes:
        indices: one array of sample indices per client, disjoint; those of nobody are counted as unused.
        tries: draws made until one was accepted.
        moved: samples that the repair handed to another client.
        groups: the one group each client holds, as N group ids; None where clients hold no one group.
        left_out: what nobody holds by the rule, in words, and how many; zeros may be listed.
    """

    indices: list[np.ndarray]
    tries: int = 1
    moved: int = 0
    groups: list[int] | None = None
    left_out: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Partitioner(ABC):
    """A partition rule: a frozen dataclass whose fields are the keys of its YAML file.

    A rule of one's own says in ``__call__`` who holds what, and draws from ``rng`` alone, so that equal seeds give
    equal partitions anywhere. It knows no tensors, files or models.

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
            groups: (n,) group ids (domain, user), or None where the data set has none.
            num_clients: N.
            rng: usually ``self.rng()``; the 75/25 split goes on drawing from it.

        Raises:
            ValueError: the rule cannot serve N clients from these samples.
        """

    def rng(self) -> Rng:
        """Return a fresh generator of the chosen kind.

        Raises:
            ValueError: an unknown kind, or a seed outside 0..2^32 - 1.
        """
        check_count("seed", self.seed, 0)
        if self.seed >= 2**32:
            raise ValueError(f"partition.seed={self.seed} must be below 2^32")
        if self.generator == "public":
            return np.random.RandomState(self.seed)
        if self.generator == "numpy":
            return numpy_generator(self.seed, "partition")
        raise ValueError(f"partition.generator={self.generator!r} is unknown; choose numpy or public")


@dataclass(frozen=True, kw_only=True)
class RedrawnPartitioner(Partitioner):
    """A rule that draws from a Dirichlet distribution until every client is large enough.

    Attributes:
        min_samples: size a client must have; see `min_client_size`.
        max_tries: draws before giving up or repairing.
        repair: after the last try take the draw with the largest smallest client, an invalid one only if there is no
            other, and raise the small clients to the minimum at the cost of the largest. False raises instead.
    """

    min_samples: int
    max_tries: int
    repair: bool

    def least(self, key: str, num_samples: int, num_clients: int) -> int:
        """Return the size that every client must have; ``key`` is the field with the concentration."""
        check_concentration(key, getattr(self, key))
        check_count("max_tries", self.max_tries, 1)
        check_count("min_samples", self.min_samples, 0)
        check_clients(num_clients, num_samples, 2)
        return min_client_size(num_samples, num_clients, self.min_samples)

    def best(
        self, draw: Callable[[], tuple[Draw, np.ndarray, bool]], least: int, limit: int, key: str
    ) -> tuple[Draw, int]:
        """Draw at most ``limit`` times; return the draw that is taken, and the number of tries.

        Args:
            draw: gives a draw, the N sizes of its clients, and whether it is valid.
            least: size that every client must have.
            limit: tries at most.
            key: field with the concentration.

        Raises:
            ValueError: no draw is valid and large enough, and none may be repaired.
        """
        rank, invalid = (False, -1), 0
        for tries in range(1, limit + 1):
            drawn, sizes, valid = draw()
            invalid += not valid
            if tries == 1 or (valid, sizes.min()) > rank:
                found, rank = drawn, (valid, int(sizes.min()))
            if rank >= (True, least):
                return found, tries
        if self.repair:
            return found, limit
        full = f", and {invalid} draws met full clients only" if invalid else ""
        raise ValueError(
            f"no Dir({getattr(self, key)}) draw in {limit} gave each of {len(sizes)} clients {least} of the "
            f"{sizes.sum()} samples; the best smallest client had {rank[1]}{full}. Raise partition.{key}, lower "
            "num_clients or partition.min_samples, or set partition.repair=true"
        )


def min_client_size(num_samples: int, num_clients: int, min_samples: int) -> int:
    """Return floor(min(min_samples, n / N / 2)), the size below which a client is too small.

    >>> min_client_size(60000, 20, 40), min_client_size(2000, 200, 40)
    (40, 5)
    """
    return int(min(min_samples, num_samples / num_clients / 2))


def check_clients(num_clients: int, num_samples: int, each: int) -> None:
    """Raise ValueError unless ``num_samples`` are enough for ``each`` at every one of ``num_clients``."""
    if num_clients < 1:
        raise ValueError(f"num_clients={num_clients} must be at least 1")
    if num_samples < num_clients * each:
        raise ValueError(
            f"num_clients={num_clients} is too many for {num_samples} samples at {each} or more per client; "
            f"the most is {num_samples // each}"
        )


def check_count(key: str, value: object, least: int) -> None:
    """Raise ValueError unless ``partition.key`` is a whole number of at least ``least``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"partition.{key}={value!r} must be a whole number >= {least}")


def check_concentration(key: str, value: object) -> None:
    """Raise ValueError unless ``partition.key`` can be the concentration of a Dirichlet distribution."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
        raise ValueError(f"partition.{key}={value!r} must be a positive number, such as 0.1")
