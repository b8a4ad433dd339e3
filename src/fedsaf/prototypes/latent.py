"""Class prototypes matched with the latent law of an image generator: what FedKTL trains on the server.

Dimension letters: A uploaded pairs (prototype, class) of a round, p prototype width, w latent width, C classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from fedsaf.prototypes.class_means import class_means

BANDWIDTHS = (10.0, 15.0, 20.0, 50.0)
"""Variances of the Gaussian kernels that are added up."""


def kernel(X: Tensor, Y: Tensor) -> Tensor:
    """Return the (n, m) sums over s of ``exp(-|x - y|^2 / (2 s))``, s in `BANDWIDTHS`; values in [0, 4]."""
    squares = (X.square().sum(dim=1)[:, None] + Y.square().sum(dim=1) - 2 * X @ Y.T).clamp_min(0)
    return torch.stack([(-squares / (2 * s)).exp() for s in BANDWIDTHS]).sum(dim=0)


def mmd(X: Tensor, Y: Tensor) -> Tensor:
    """Squared maximum mean discrepancy of two samples, biased: mean of ``k(x, x') + k(y, y') - 2 k(x, y)``.

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


@dataclass(frozen=True)
class LatentTraining:
    """How Phi and R are trained in a round.

    Attributes:
        epochs: passes over the uploaded pairs.
        batch_size: pairs per step, at least 2.
        lr: of Adam.
        centroid_weight: lambda, of the distance to the centroids.
        max_norm: gradients of Phi, and those of R, are clipped to this length.
    """

    epochs: int
    batch_size: int
    lr: float
    centroid_weight: float
    max_norm: float

    def __post_init__(self) -> None:
        if self.batch_size < 2:
            raise ValueError(f"batch_size must be at least 2, got {self.batch_size}")
        for name in ("epochs", "lr", "max_norm"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if not self.centroid_weight >= 0:
            raise ValueError(f"centroid_weight must not be negative, got {self.centroid_weight}")


class LatentAlignment(nn.Module):
    """The network Phi: R^p -> R^w (linear p -> p, batch normalisation, ReLU, linear p -> w) and the centroids R (C, w).

    Args:
        num_classes: C.
        width: p.
        latent_dim: w.
    """

    def __init__(self, num_classes: int, width: int, latent_dim: int) -> None:
        super().__init__()
        self.transform = nn.Sequential(
            nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, latent_dim)
        )
        self.centroids = nn.Parameter(torch.randn(num_classes, latent_dim))

    @torch.no_grad()
    def recentre(self, prototypes: Tensor, labels: Tensor) -> None:
        """Set R_c to the mean of Phi over the prototypes of class c; classes without any keep theirs."""
        self.transform.eval()
        means = class_means(self.transform(prototypes).double(), labels, len(self.centroids))
        self.centroids[means.labels] = means.rows.float()

    def loss(self, prototypes: Tensor, labels: Tensor, latents: Tensor, centroid_weight: float) -> Tensor:
        """Return ``MMD(Phi(P), latents) + lambda MSE(Phi(P), R_y)`` of one batch."""
        transformed = self.transform(prototypes)
        return mmd(transformed, latents) + centroid_weight * F.mse_loss(transformed, self.centroids[labels])

    @torch.enable_grad()
    def fit(self, prototypes: Tensor, labels: Tensor, training: LatentTraining, draws: Generator) -> float | None:
        """Train Phi and R on the pairs of one round, with fresh Adam optimisers.

        Args:
            prototypes: (A, p).
            labels: (A,).
            training: how.
            draws: draws orders and latents.

        Returns:
            Mean loss over the batches of the last epoch; None if there was none, since a batch of one pair is dropped
            (batch normalisation has nothing to normalise there).

        Raises:
            FloatingPointError: the training diverges.
        """
        optimizer = torch.optim.Adam(self.parameters(), lr=training.lr)
        self.transform.train()
        losses: list[float] = []
        for _ in range(training.epochs):
            order = torch.randperm(len(labels), generator=draws)
            losses = []
            for batch in order.split(training.batch_size):
                if len(batch) == 1:
                    continue
                latents = torch.randn(len(batch), self.centroids.shape[1], generator=draws)
                loss = self.loss(prototypes[batch], labels[batch], latents, training.centroid_weight)
                optimizer.zero_grad()
                loss.backward()
                for part in (self.transform.parameters(), [self.centroids]):
                    nn.utils.clip_grad_norm_(part, training.max_norm)
                optimizer.step()
                losses.append(loss.item())
        if not losses:
            return None
        if not math.isfinite(sum(losses)):
            raise FloatingPointError(f"the training of the latent centroids diverged: losses {losses}")
        return sum(losses) / len(losses)
