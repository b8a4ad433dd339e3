"""The tests that decide claims: what is compared per seed, and on which side of a bound its interval lies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedsaf.tracking.intervals import spread_of

HOLDS, DOES_NOT, UNDECIDED = "holds", "does not", "undecided"


@dataclass(frozen=True)
class Contrast:
    """A test.

    Attributes:
        text: what is compared, for a reader; ``{high}`` and ``{low}`` stand for the arms.
        combine: values of the arms of one seed, in their order -> the number whose interval is taken.
        shown: that number -> the effect as it is shown.
        null: the bound unless a claim names another, as shown.
    """

    text: str
    combine: Callable[[Sequence[float]], float]
    shown: Callable[[float], float]
    null: float


def _difference(values: Sequence[float]) -> float:
    high, low = values
    return high - low


def _log_ratio(values: Sequence[float]) -> float:
    high, low = values
    if high <= 0 or low <= 0:
        raise ValueError(f"a ratio of {high:g} and {low:g}: expected positive numbers")
    return math.log(high / low)


def _slope(values: Sequence[float]) -> float:
    """Return the least-squares slope of high minus low over the steps; values come as high, low of each step."""
    gaps = np.subtract(values[0::2], values[1::2])
    steps = np.arange(len(gaps)) - (len(gaps) - 1) / 2
    return float(steps @ gaps / (steps @ steps))


CONTRASTS = {
    "difference": Contrast("{high} minus {low}", _difference, float, 0.0),
    "ratio": Contrast("{high} divided by {low}, mean of logarithms", _log_ratio, math.exp, 1.0),
    "trend": Contrast("slope of {high} minus {low} per step", _slope, float, 0.0),
    "level": Contrast("{high}", lambda values: values[0], float, 0.0),
}
"""Tests by the names that definitions use; an ordering is a difference of each pair of neighbours."""


@dataclass(frozen=True)
class Estimate:
    """An effect over seeds, as shown.

    Attributes:
        mean: mean effect; geometric for a ratio.
        interval: 95 % interval of Student's t over seeds; smallest and largest value of an exact number; None for one
            seed, which tells nothing about its spread.
        n: how many seeds.
    """

    mean: float
    interval: tuple[float, float] | None
    n: int


def estimate(values: Sequence[float], test: str, exact: bool) -> Estimate:
    """Return the effect of values of one seed each, at least one, as `Contrast.combine` returns them.

    >>> estimate([1.0, 2.0, 3.0], "difference", exact=False).mean
    2.0
    """
    spread, shown = spread_of(values), CONTRASTS[test].shown
    interval = (min(values), max(values)) if exact else spread.interval
    return Estimate(shown(spread.mean), interval and (shown(interval[0]), shown(interval[1])), spread.n)


def _above(low: float, high: float, bound: float, exact: bool) -> str:
    if low > bound:
        return HOLDS
    return DOES_NOT if high < bound or (exact and high == bound) else UNDECIDED


def _at_most(low: float, high: float, bound: float, exact: bool) -> str:
    if high <= bound:
        return HOLDS
    return DOES_NOT if low > bound else UNDECIDED


def _below(low: float, high: float, bound: float, exact: bool) -> str:
    return _above(-high, -low, -bound, exact)


SIDES = {"above": _above, "below": _below, "at_most": _at_most}
"""By name, on which side of the bound an effect lies if its claim holds."""


def verdict(effect: Estimate, side: str, bound: float, exact: bool) -> str:
    """Return holds, does not, or undecided: the interval contains the bound, or there is none.

    >>> verdict(Estimate(1.0, (0.5, 1.5), 3), "above", 0.0, exact=False)
    'holds'
    >>> verdict(Estimate(1.0, (-0.5, 2.5), 3), "above", 0.0, exact=False)
    'undecided'
    """
    return UNDECIDED if effect.interval is None else SIDES[side](*effect.interval, bound, exact)
