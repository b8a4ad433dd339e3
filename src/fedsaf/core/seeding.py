"""All randomness is a function of coordinates (seed, purpose, round, client), never of a global stream.

So neither the order of clients, nor the number of ranks, nor a restart can change a draw, and no state is saved.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import torch


def derive_seed(seed: int, purpose: str, round: int = 0, client: int = 0) -> int:
    """Map coordinates to a seed in [0, 2^63): equal coordinates, equal seed; any other, an independent one.

    >>> derive_seed(0, "shuffle", 1, 2) == derive_seed(0, "shuffle", 1, 2)
    True
    >>> derive_seed(0, "shuffle", 1, 2) == derive_seed(0, "shuffle", 2, 1)
    False
    """
    text = f"{seed}/{purpose}/{round}/{client}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def numpy_generator(seed: int, purpose: str, round: int = 0, client: int = 0) -> np.random.Generator:
    """Return a NumPy generator for these coordinates."""
    import numpy as np

    return np.random.default_rng(derive_seed(seed, purpose, round, client))


def torch_generator(seed: int, purpose: str, round: int = 0, client: int = 0) -> torch.Generator:
    """Return a CPU torch generator for these coordinates."""
    import torch

    return torch.Generator().manual_seed(derive_seed(seed, purpose, round, client))


@contextmanager
def seeded(seed: int, purpose: str, round: int = 0, client: int = 0) -> Iterator[None]:
    """Run a unit of work under its own torch streams (CPU and current CUDA device); the outer streams are untouched."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(derive_seed(seed, purpose, round, client))
        yield
