"""How the weight of a term moves over communication rounds t = 0 .. T - 1."""

from __future__ import annotations

from collections.abc import Callable

SCHEDULES: dict[str, Callable[[float, int, int], float]] = {
    "constant": lambda weight, t, rounds: weight,
    "linear_decay": lambda weight, t, rounds: weight * (1.0 - t / rounds),
    "linear_growth": lambda weight, t, rounds: weight * (t / rounds),
}
"""Name to (weight, t, T) -> weight of round t. FedProc's alpha is ``linear_decay``, its cross-entropy the growth."""


def scheduled_weight(schedule: str, weight: float, t: int, rounds: int) -> float:
    """Return the weight of round ``t`` of ``rounds``.

    >>> scheduled_weight("linear_decay", 2.0, 1, 4)
    1.5
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"weight schedule {schedule!r} is unknown; choose one of {', '.join(SCHEDULES)}")
    return SCHEDULES[schedule](weight, t, rounds)
