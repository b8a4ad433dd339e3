"""How the weight of a term moves over communication rounds t = 0 .. T - 1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

Schedule: TypeAlias = Callable[[float, int, int], float]
"""(weight, t, T) -> weight of round t."""

SCHEDULES: dict[str, Schedule] = {
    "constant": lambda weight, t, rounds: weight,
    "linear_decay": lambda weight, t, rounds: weight * (1.0 - t / rounds),
    "linear_growth": lambda weight, t, rounds: weight * (t / rounds),
}
"""Schedules without parameters, by name. FedProc's alpha is ``linear_decay``, its cross-entropy the growth."""


@dataclass(frozen=True)
class Geometric:
    """Decay by a constant factor per round: ``weight * final_share ** (t / T)``, AlignFed's with 0.1.

    Attributes:
        final_share: > 0, of the weight that would be left in round T.

    >>> Geometric(0.1)(20.0, 0, 2), round(Geometric(0.1)(20.0, 1, 2), 4)
    (20.0, 6.3246)
    """

    final_share: float

    def __post_init__(self) -> None:
        if not self.final_share > 0:
            raise ValueError(f"final_share must be positive, got {self.final_share}")

    def __call__(self, weight: float, t: int, rounds: int) -> float:
        """Return the weight of round ``t`` of ``rounds``."""
        return weight * self.final_share ** (t / rounds)


def scheduled_weight(schedule: str | Schedule, weight: float, t: int, rounds: int) -> float:
    """Return the weight of round ``t`` of ``rounds``.

    Args:
        schedule: a name of `SCHEDULES`, or an object such as `Geometric`.
        weight: what is scheduled.
        t: round, from 0.
        rounds: T.

    Raises:
        ValueError: unknown name.

    >>> scheduled_weight("linear_decay", 2.0, 1, 4)
    1.5
    """
    if callable(schedule):
        return schedule(weight, t, rounds)
    if schedule not in SCHEDULES:
        raise ValueError(f"weight schedule {schedule!r} is unknown; choose one of {', '.join(SCHEDULES)}")
    return SCHEDULES[schedule](weight, t, rounds)
