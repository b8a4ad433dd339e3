"""Maximum mean discrepancy: how far the laws of two samples are apart. Dimension letters: n, m rows, w width."""

from __future__ import annotations

import torch
from torch import Tensor

BANDWIDTHS = (10.0, 15.0, 20.0, 50.0)
"""Variances of the Gaussian kernels that are added up, those of FedKTL."""


def kernel(X: Tensor, Y: Tensor) -> Tensor:
    """Return the (n, m) sums over s of ``exp(-|x - y|^2 / (2 s))``, s in `BANDWIDTHS`; values in [0, 4]."""
    squares = (X.square().sum(dim=1)[:, None] + Y.square().sum(dim=1) - 2 * X @ Y.T).clamp_min(0)
    return torch.stack([(-squares / (2 * s)).exp() for s in BANDWIDTHS]).sum(dim=0)


def mmd(X: Tensor, Y: Tensor) -> Tensor:
    """Squared maximum mean discrepancy, biased: mean of ``k(x, x') + k(y, y') - 2 k(x, y)``.

    Args:
        X: (n, w).
        Y: (m, w).

    Returns:
        Scalar >= 0 up to rounding; 0 for equal samples.

    >>> X = torch.tensor([[0.0], [1.0]])
    >>> mmd(X, X).item()
    0.0
    """
    return kernel(X, X).mean() + kernel(Y, Y).mean() - 2 * kernel(X, Y).mean()
