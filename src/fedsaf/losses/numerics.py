"""What keeps alignment losses exact and finite: precision, zero rows, refusal of NaN.

Dimension letters: n rows, d feature dimension.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Concatenate, ParamSpec

import torch
from torch import Tensor

Arguments = ParamSpec("Arguments")


def promoted(P: Tensor) -> Tensor:
    """Return ``P`` as float64 if it is float64, else as float32 (half precision overflows in a Gram matrix)."""
    return P if P.dtype == torch.float64 else P.float()


def full_precision(
    loss: Callable[Concatenate[Tensor, Arguments], Tensor],
) -> Callable[Concatenate[Tensor, Arguments], Tensor]:
    """Run a loss outside autocast, which would halve the precision of its products, its first argument promoted."""

    @functools.wraps(loss)
    def wrapped(P: Tensor, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Tensor:
        if not torch.is_autocast_enabled(P.device.type):
            return loss(promoted(P), *args, **kwargs)
        with torch.autocast(P.device.type, enabled=False):
            return loss(promoted(P), *args, **kwargs)

    return wrapped


def target_like(Q: Tensor, P: Tensor) -> Tensor:
    """Return the global side ``Q`` without graph and in the dtype of ``P``.

    Raises:
        ValueError: the rows of the two do not correspond.
    """
    if P.ndim != 2 or Q.ndim != 2 or len(P) != len(Q):
        raise ValueError(f"rows and targets must be two (n, d) matrices, got {tuple(P.shape)} and {tuple(Q.shape)}")
    return Q.detach().to(P.dtype)


def inactive(P: Tensor) -> Tensor:
    """Return the constant 0 without graph: how a term says that it has nothing to contribute."""
    return torch.zeros((), dtype=promoted(P[:0]).dtype, device=P.device)


def unit_rows(P: Tensor, floor: float) -> Tensor:
    """Divide each row by its length.

    A row no longer than ``floor`` counts as a zero row: it becomes 0 and gets no gradient (dividing by the floor would
    give one of size 1/floor). NaN, Inf and a length that overflows become NaN, for the caller's check to report.

    Args:
        P: (n, d).
        floor: shortest length that still has a direction.

    Returns:
        (n, d), rows of length 1 or 0.

    >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]), 1e-8)
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    length = torch.linalg.vector_norm(P, dim=1, keepdim=True)
    return P / length.masked_fill(length.isinf(), math.nan).masked_fill(length <= floor, math.inf)


def checked(term: str, value: Tensor) -> Tensor:
    """Return the scalar ``value``.

    Raises:
        FloatingPointError: it is NaN or Inf, which for these losses means that an input was, or overflowed.
    """
    if not math.isfinite(value.item()):
        raise FloatingPointError(f"{term}: NaN, Inf or an overflow in its inputs (value {value.item()})")
    return value
