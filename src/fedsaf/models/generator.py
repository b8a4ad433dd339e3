"""The class-conditional generator of features of FedGen (Zhu et al., 2021).

Dimension letters: B batch, d feature dimension, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

NOISES: dict[str, Callable[..., Tensor]] = {"uniform": torch.rand, "normal": torch.randn}
"""Distribution of the noise: uniform on [0, 1), as the public code draws it, or standard normal."""


class FeatureGenerator(nn.Module):
    """[noise; one-hot label] -> linear -> batch normalisation -> ReLU -> linear -> feature.

    With noise of 32, C = 100, 512 hidden units and d = 512: 331,776 parameters.

    Args:
        noise_dim: entries of the noise.
        hidden: hidden units.
        num_classes: C.
        feature_dim: d.
        noise: a name of ``NOISES``.
    """

    def __init__(self, noise_dim: int, hidden: int, num_classes: int, feature_dim: int, noise: str) -> None:
        super().__init__()
        self.noise_dim, self.num_classes, self.noise = noise_dim, num_classes, noise
        self.hidden = nn.Linear(noise_dim + num_classes, hidden)
        self.norm = nn.BatchNorm1d(hidden)
        self.output = nn.Linear(hidden, feature_dim)

    def forward(self, noise: Tensor, labels: Tensor) -> Tensor:
        """Map noise (B, noise_dim) and labels (B,) to features (B, d)."""
        inputs = torch.cat([noise, F.one_hot(labels, self.num_classes).to(noise.dtype)], dim=1)
        return self.output(torch.relu(self.norm(self.hidden(inputs))))

    def draw(self, labels: Tensor, generator: Generator | None) -> Tensor:
        """Return features (B, d) for labels (B,) from fresh noise; None takes the ambient random stream."""
        shape = (len(labels), self.noise_dim)
        return self(NOISES[self.noise](shape, generator=generator, device=labels.device), labels)


@dataclass(frozen=True)
class GeneratorShape:
    """What client and server must agree on to build the same generator.

    Attributes:
        noise_dim: entries of the noise.
        hidden: hidden units.
        noise: ``uniform`` on [0, 1), or ``normal``.
    """

    noise_dim: int
    hidden: int
    noise: str

    def __post_init__(self) -> None:
        if self.noise not in NOISES:
            raise ValueError(f"the generator's noise is {self.noise!r}; choose one of {', '.join(NOISES)}")

    def build(self, num_classes: int, feature_dim: int) -> FeatureGenerator:
        """Return a generator with weights from the ambient random stream."""
        return FeatureGenerator(self.noise_dim, self.hidden, num_classes, feature_dim, self.noise)
