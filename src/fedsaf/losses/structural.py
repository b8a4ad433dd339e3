"""Structural losses of FedSAF: only the geometry between rows is compared, never their coordinates.

Both are one minus the cosine of two descriptors S(P), S(Q), Eq. (11), of P (n, d) rows of the client with gradient and
Q (n, d) targets, which never get one. Both run in float32 (float64 for float64 rows) whatever the autocast, return a
scalar in [0, 1], and raise ValueError for rows that do not correspond, FloatingPointError for NaN or Inf in the inputs.
Dimension letters: n rows, d feature dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from fedsaf.losses.numerics import full_precision, inactive, target_like, unit_rows

NORM_FLOOR = 1e-12
"""Rows no longer than this have no direction and stay zero (RCSA)."""

ROUNDING = 32
"""Rows whose spread is below this many machine epsilons of their size differ by rounding alone: they count as equal.

Rows that are equal in exact arithmetic, such as means over different numbers of equal vectors, are not so in float32.
An absolute threshold would let that noise through at offset 1e3, and would silence small but real geometry.
"""


@full_precision
def gcsa(P: Tensor, Q: Tensor) -> Tensor:
    """Gram-matrix centred structural alignment, one minus linear CKA, Eq. (12)-(13) of FedSAF.

    ``1 - <K, L> / (|K| |L|)`` with K, L the Gram matrices of the centred rows. Zero iff the centred rows agree up to
    rotation, reflection and one positive scale (Prop. 2). A constant 0 without graph where there is no shape to
    compare: n <= 2, or all rows of one side equal up to rounding. A zero row is a row like any other.

    >>> P = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 3.0]])
    >>> gcsa(P, 2 * P.flip(1) + 1).item()
    0.0
    """
    return _descriptor_distance("gcsa", P, target_like(Q, P), gram)


@full_precision
def rcsa(P: Tensor, Q: Tensor) -> Tensor:
    """Relational (dissimilarity) structural alignment, Eq. (14) of FedSAF.

    ``1 - r_P . r_Q / (|r_P| |r_Q|)`` with r the squared distances between row-normalised rows. Zero under any rotation
    and any positive scale of rows (Prop. 3); a translation is seen. A constant 0 without graph where there is nothing
    to compare: n <= 2, or all rows of one side parallel up to rounding. A zero row stays at the origin and gets no
    gradient.

    >>> P = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> rcsa(P, 5 * P.flip(1)).item()
    0.0
    """
    Q = target_like(Q, P)
    return _descriptor_distance("rcsa", unit_rows(P, NORM_FLOOR), unit_rows(Q, NORM_FLOOR), squared_distances)


def centre(P: Tensor) -> Tensor:
    """Subtract the mean row of (n, d), n >= 1.

    The first row goes off before the mean is taken. In exact arithmetic that changes nothing, neither value nor
    gradient (hence the detach); in floating point it makes equal rows exactly zero and keeps small spreads on large
    offsets.

    >>> centre(torch.tensor([[1.0, 2.0], [3.0, 2.0]]))
    tensor([[-1.,  0.],
            [ 1.,  0.]])
    """
    shifted = P - P[0].detach()
    return shifted - shifted.mean(dim=0)


def gram(X: Tensor) -> Tensor:
    """Return the (n, n) matrix of inner products of the rows: of centred rows, the descriptor of GCSA."""
    return X @ X.T


def squared_distances(X: Tensor) -> Tensor:
    """Return the (n, n) squared distances between rows, clamped at 0 from below: of unit rows, that of RCSA."""
    products = gram(X)
    squares = products.diagonal()
    return (squares[:, None] + squares - 2 * products).clamp_min(0)


def _descriptor_distance(term: str, P: Tensor, Q: Tensor, descriptor: Callable[[Tensor], Tensor]) -> Tensor:
    """One minus the cosine of the descriptors of the centred rows, in the form |a - b|^2 / 2 of two unit matrices.

    That form cannot be negative and does not cancel near 0. Centred rows are first divided by their total size, a
    constant to which the cosine is blind, so that no float overflows in fourth powers.
    """
    if len(P) == 0:
        return inactive(P)
    centred = centre(P), centre(Q)
    sizes = torch.stack([torch.linalg.vector_norm(matrix.detach()) for matrix in (P, Q, *centred)]).tolist()
    if not all(map(math.isfinite, sizes)):
        raise FloatingPointError(f"{term}: NaN, Inf or an overflow in its inputs")
    noise = ROUNDING * torch.finfo(P.dtype).eps
    if len(P) <= 2 or sizes[2] <= noise * sizes[0] or sizes[3] <= noise * sizes[1]:
        return inactive(P)
    ours, theirs = (descriptor(X / size) for X, size in zip(centred, sizes[2:], strict=True))
    return (_direction(ours) - _direction(theirs)).square().sum() / 2


def _direction(S: Tensor) -> Tensor:
    return S / torch.linalg.vector_norm(S)
