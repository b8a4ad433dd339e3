"""Vectors spread over the unit sphere, and maps that keep lengths and angles.

The builders take C, d and a generator that draws the orientation, and return (C, d) float64 unit rows.
Dimension letters: d feature dimension, C classes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

ENERGY_TEMPERATURE = 0.5
STEP = 0.1
MAX_STEPS = 100_000
CHECK_EVERY = 1_000
RELATIVE_CHANGE = 1e-6


def etf(num_classes: int, feature_dim: int, generator: Generator) -> Tensor:
    """Simplex equiangular tight frame: all pairwise cosines are -1/(C - 1), the most even spread there is.

    ``V = sqrt(C / (C - 1)) U (I - 1 1^T / C)`` with U a (d, C) matrix of orthonormal columns; two classes give opposite
    vectors.

    Raises:
        ValueError: C outside [2, d].
    """
    if num_classes < 2:
        raise ValueError(f"builder 'etf' needs num_classes >= 2, got {num_classes}")
    frame = orthogonal(num_classes, feature_dim, generator)
    return (num_classes / (num_classes - 1)) ** 0.5 * (frame - frame.mean(dim=0))


def optimise(num_classes: int, feature_dim: int, generator: Generator) -> Tensor:
    """Spread vectors by projected gradient descent on `energy`; the way for C > d.

    From a start uniform in (-1, 1), normalised. After each block of 1000 steps it stops if the energy changed by less
    than 1e-6 of its value, and in any case after 100 000. For C <= d + 1 this ends at the cosines of the simplex.

    Deviation: a step is 0.1 times the gradient of the sum over classes, not of their mean. With the mean, vectors move
    C times slower, and for C = 100 the stop rule holds while cosines are still 0.011 away from the simplex.
    """
    start = torch.rand(num_classes, feature_dim, dtype=torch.float64, generator=generator)
    vectors = _on_sphere(2 * start - 1)
    before = energy(vectors)
    for _ in range(MAX_STEPS // CHECK_EVERY):
        for _ in range(CHECK_EVERY):
            attention = (vectors @ vectors.T / ENERGY_TEMPERATURE).softmax(dim=1)
            gradient = (attention + attention.T) @ vectors / ENERGY_TEMPERATURE
            vectors = _on_sphere(vectors - STEP * gradient)
        now = energy(vectors)
        if abs(before - now) < RELATIVE_CHANGE * abs(now):
            break
        before = now
    return vectors


def orthogonal(num_classes: int, feature_dim: int, generator: Generator) -> Tensor:
    """Orthonormal rows: the Q factor of a Gaussian matrix, signs fixed so that it is unique.

    Raises:
        ValueError: C > d.
    """
    if num_classes > feature_dim:
        raise ValueError(
            f"builders 'etf' and 'orthogonal' need num_classes <= feature_dim = {feature_dim}, got {num_classes}; "
            "use 'optimise'"
        )
    gaussian = torch.randn(feature_dim, num_classes, dtype=torch.float64, generator=generator)
    basis, triangular = torch.linalg.qr(gaussian)
    return (basis * triangular.diagonal().sign()).T.contiguous()


def random(num_classes: int, feature_dim: int, generator: Generator) -> Tensor:
    """Independent uniform directions, the control."""
    return _on_sphere(torch.randn(num_classes, feature_dim, dtype=torch.float64, generator=generator))


BUILDERS: dict[str, Callable[[int, int, Generator], Tensor]] = {
    "etf": etf,
    "optimise": optimise,
    "orthogonal": orthogonal,
    "random": random,
}


def energy(vectors: Tensor) -> float:
    """Mean over classes of ``log sum_c' exp(v_c . v_c' / 0.5)``, all c' included: small when vectors are spread.

    For unit vectors with C <= d + 1 the minimum is ``log(e^2 + (C - 1) e^(-2 / (C - 1)))``.
    """
    return (vectors @ vectors.T / ENERGY_TEMPERATURE).logsumexp(dim=1).mean().item()


def semi_orthogonal(width_in: int, width_out: int, generator: Generator) -> Tensor:
    """Return a (v, w) float32 map with orthonormal rows for v <= w, orthonormal columns for v >= w.

    >>> Q = semi_orthogonal(2, 3, torch.Generator().manual_seed(0))
    >>> torch.allclose(Q @ Q.T, torch.eye(2), atol=1e-6)
    True
    """
    if width_in <= width_out:
        return orthogonal(width_in, width_out, generator).float()
    return orthogonal(width_out, width_in, generator).T.contiguous().float()


def _on_sphere(vectors: Tensor) -> Tensor:
    return vectors / torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
