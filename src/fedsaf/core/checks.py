"""Refusals of a choice or a number, in the words that all parts use."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

Choice = TypeVar("Choice")


def one_of(key: str, value: Choice, choices: Collection[Choice]) -> Choice:
    """Return ``value``.

    Raises:
        ValueError: it is none of the choices, which are listed.

    >>> one_of("weighting", "median", ("samples", "uniform"))
    Traceback (most recent call last):
    ValueError: weighting is 'median'; choose samples or uniform
    """
    if value not in choices:
        *others, last = map(str, choices)
        raise ValueError(f"{key} is {value!r}; choose {', '.join(others)}{' or ' if others else ''}{last}")
    return value


def positive(**values: float) -> None:
    """Check numbers by their key.

    Raises:
        ValueError: one of them is not > 0, as NaN is not.
    """
    for key, value in values.items():
        if not value > 0:
            raise ValueError(f"{key} is {value}; expected a number > 0")
