"""Which clients take part in which round; drawn from (seed, round) alone, so every method meets the same clients."""

from __future__ import annotations

import math

from fedsaf.core.seeding import numpy_generator


def cohort(seed: int, round: int, num_clients: int, participation_ratio: float) -> list[int]:
    """Return the sorted ids of max(1, floor(N ratio)) clients, drawn uniformly without replacement.

    >>> cohort(0, 0, 4, 1.0)
    [0, 1, 2, 3]
    >>> len(cohort(0, 0, 10, 0.3))
    3
    """
    # 0.29 * 100 is 28.999999999999996: the small shift keeps what the user wrote.
    size = max(1, math.floor(num_clients * participation_ratio + 1e-9))
    chosen = numpy_generator(seed, "cohort", round).choice(num_clients, size=size, replace=False)
    return sorted(int(client) for client in chosen)
