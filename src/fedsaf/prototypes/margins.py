"""Distances between class prototypes, as FedTGP measures them.

Dimension letters: K classes, d feature dimension.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def pairwise_distances(prototypes: Tensor) -> Tensor:
    """Return the (K, K) Euclidean distances between the rows of a (K, d) matrix, from exact differences."""
    return torch.cdist(prototypes, prototypes, compute_mode="donot_use_mm_for_euclid_dist")


def nearest_distances(prototypes: Tensor) -> Tensor:
    """Prototype margins: for each class the distance to the nearest prototype of another class.

    Args:
        prototypes: (K, d), one row per class.

    Returns:
        (K,); infinite for K = 1, empty for K = 0.

    >>> nearest_distances(torch.tensor([[0.0], [1.0], [3.0]]))
    tensor([1., 1., 2.])
    """
    if len(prototypes) == 0:
        return prototypes.new_zeros(0)
    return pairwise_distances(prototypes).fill_diagonal_(math.inf).amin(dim=1)


def max_pair(centroids: Tensor) -> float:
    """Largest distance between two class centroids, the adaptive margin of the FedTGP paper; 0 for fewer than two.

    >>> max_pair(torch.tensor([[0.0], [1.0], [3.0]]))
    3.0
    """
    return pairwise_distances(centroids).max().item() if len(centroids) > 1 else 0.0


def mean_of_min(centroids: Tensor) -> float:
    """Mean of the class-wise nearest distances, the margin of FedSA; 0 for fewer than two centroids.

    >>> round(mean_of_min(torch.tensor([[0.0], [1.0], [3.0]])), 4)
    1.3333
    """
    return nearest_distances(centroids).mean().item() if len(centroids) > 1 else 0.0


def max_of_min(centroids: Tensor) -> float:
    """Largest of the class-wise nearest distances, the margin of public FedTGP code; 0 for fewer than two centroids.

    Deviation: that code ends at its cap for one class, because its gap starts from a huge number.

    >>> max_of_min(torch.tensor([[0.0], [1.0], [3.0]]))
    2.0
    """
    return nearest_distances(centroids).max().item() if len(centroids) > 1 else 0.0
