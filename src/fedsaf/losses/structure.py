"""Descriptors S of inter-class geometry, Eq. (11) of FedSAF: centred Gram matrix and dissimilarity matrix.

Dimension letters: n rows, d feature dimension.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedsaf.losses.numerics import unit_rows

NORM_FLOOR = 1e-12
"""Rows no longer than this have no direction and stay zero (RCSA)."""


def centre(P: Tensor) -> Tensor:
    """Subtract the mean row.

    The first row goes off before the mean is taken. In exact arithmetic that changes nothing, neither value nor
    gradient (hence the detach); in floating point it makes equal rows exactly zero and keeps small spreads on large
    offsets.

    Args:
        P: (n, d), n >= 1.

    Returns:
        (n, d), columns of mean zero.

    >>> centre(torch.tensor([[1.0, 2.0], [3.0, 2.0]]))
    tensor([[-1.,  0.],
            [ 1.,  0.]])
    """
    shifted = P - P[0].detach()
    return shifted - shifted.mean(dim=0)


def gram(X: Tensor) -> Tensor:
    """Return the (n, n) matrix of inner products of the rows of ``X``."""
    return X @ X.T


def centred_gram(P: Tensor) -> Tensor:
    """Gram matrix K of the centred rows, the descriptor of GCSA.

    >>> centred_gram(torch.tensor([[0.0], [2.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    return gram(centre(P))


def squared_distances(X: Tensor) -> Tensor:
    """Return the (n, n) matrix of squared Euclidean distances between rows, clamped at 0 from below."""
    products = gram(X)
    squares = products.diagonal()
    return (squares[:, None] + squares - 2 * products).clamp_min(0)


def rdm(P: Tensor) -> Tensor:
    """Representational dissimilarities r, the descriptor of RCSA: squared distances between row-normalised rows.

    Args:
        P: (n, d), n >= 1. A zero row stays zero, at distance 1 from every other.

    Returns:
        (n (n - 1) / 2,), pairs a < b in row-major order, values in [0, 4]; empty for one row.

    >>> rdm(torch.tensor([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]]))
    tensor([2., 4., 2.])
    """
    distances = squared_distances(centre(unit_rows(P, NORM_FLOOR)))
    above = torch.triu_indices(len(P), len(P), offset=1, device=P.device)
    return distances[above[0], above[1]]
