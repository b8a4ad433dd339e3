"""Mean, deviation and interval of a few seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, pstdev, stdev

LEVEL = 0.95
"""Coverage of every interval in a report."""


@dataclass(frozen=True)
class Spread:
    """What n values say.

    Attributes:
        mean: their mean.
        std: population standard deviation (divided by n), as the papers give it; 0 for one value.
        n: how many.
        interval: bounds of the 95 % interval of the mean; None for one value, which tells nothing about its spread.
    """

    mean: float
    std: float
    n: int
    interval: tuple[float, float] | None


def spread_of(values: Sequence[float]) -> Spread:
    """Return mean, population standard deviation and the interval of Student's t over the values.

    The interval is ``mean ± t(0.975, n - 1) s / sqrt(n)`` with s divided by n - 1; it supposes independent, roughly
    normal values, as seeds of one configuration are. It has width 0 where all values are equal.

    >>> spread = spread_of([1.0, 2.0, 3.0])
    >>> spread.mean, round(spread.std, 3), [round(bound, 2) for bound in spread.interval]
    (2.0, 0.816, [-0.48, 4.48])

    Raises:
        ValueError: there is no value.
    """
    from scipy.stats import t  # takes a second to import

    n = len(values)
    if n == 0:
        raise ValueError("values: got none, expected at least one")
    mean, interval = fmean(values), None
    if n > 1:
        half = float(t.ppf((1 + LEVEL) / 2, n - 1)) * stdev(values) / sqrt(n)
        interval = (mean - half, mean + half)
    return Spread(mean, pstdev(values), n, interval)
