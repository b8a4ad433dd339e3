"""Proposition 1 of FedSAF: what a coordinate loss asks for is shape plus a rigid motion that carries no knowledge.

Dimension letters: n rows, d feature dimension.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fedsaf.losses.numerics import target_like, unit_rows
from fedsaf.losses.structural import NORM_FLOOR


class Decomposition(NamedTuple):
    """The two parts of a coordinate loss; ``coordinate = shape + rigid``.

    Attributes:
        coordinate: squared Frobenius distance of the row-normalised matrices, in [0, 4 n].
        shape: what remains under the best rotation, in [0, coordinate].
        rigid: what that rotation removes, >= 0; zero iff the identity is already a best rotation.
    """

    coordinate: float
    shape: float
    rigid: float


def decompose(P: Tensor, Z: Tensor) -> Decomposition:
    """Split the row-normalised coordinate loss of two matched matrices, Prop. 1 of FedSAF.

    ``shape = min_R |Z - P R|^2 = |Z|^2 + |P|^2 - 2 |P^T Z|_*`` over orthogonal R. The nuclear norm is taken of the
    (at most n x n) product of the triangular factors of P^T and Z^T, whose singular values are those of the d x d one.

    Args:
        P: (n, d) global prototypes.
        Z: (n, d) local prototypes of the same classes.

    Returns:
        The parts, computed in float64; all zero for n = 0. Zero rows stay zero.

    Raises:
        ValueError: rows that do not correspond.
        FloatingPointError: NaN or Inf in the inputs.

    >>> quarter_turn = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    >>> parts = decompose(torch.eye(2), torch.eye(2) @ quarter_turn)
    >>> [round(part, 6) for part in parts]
    [4.0, 0.0, 4.0]
    """
    P = unit_rows(P.detach().double(), NORM_FLOOR)
    Z = unit_rows(target_like(Z, P), NORM_FLOOR)
    coordinate = (Z - P).square().sum()
    if not coordinate.isfinite():
        raise FloatingPointError("decompose: NaN, Inf or an overflow in its inputs")
    factors = [torch.linalg.qr(matrix.T, mode="r").R for matrix in (P, Z)]
    nuclear = torch.linalg.svdvals(factors[0] @ factors[1].T).sum()
    shape = (Z.square().sum() + P.square().sum() - 2 * nuclear).clamp(min=0).minimum(coordinate)
    return Decomposition(coordinate.item(), shape.item(), (coordinate - shape).item())
