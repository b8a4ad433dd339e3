"""The two-granularity model of FedMRL: a shared small model and the private one, fused into one nested representation.

Dimension letters: B batch, d feature dimension, s feature dimension of the small model, C classes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedsaf.core.contracts import AuxiliaryModel, Client, Outputs
from fedsaf.models.context import ModelContext


class Projector(AuxiliaryModel):
    """Builder of the private projector R: (d + s) -> d, a linear layer with bias.

    Attributes:
        shared: False.
        lr: None.
    """

    shared = False
    lr = None

    def __init__(self, small_dim: int) -> None:
        """Choose s.

        Args:
            small_dim: s, at most the clients' d as everywhere, since the small head reads the first s of d entries.

        Raises:
            ValueError: a dimension below one.
        """
        if small_dim < 1:
            raise ValueError(f"small_dim is {small_dim}; expected at least 1")
        self.small_dim = small_dim

    def build(self, context: ModelContext, client: int) -> nn.Module:
        """Return the layer: d (d + s + 1) parameters."""
        d = context.group.feature_dim
        return nn.Linear(d + min(self.small_dim, d), d)


class Fused:
    """Answer rule of FedMRL: u = R([g(x); f(x)]) and h(u), g being the trunk of the small model.

    Args:
        small: name of the auxiliary g, which the server averages.
        projector: name of the auxiliary R.
    """

    def __init__(self, small: str, projector: str) -> None:
        self.small, self.projector = small, projector

    def __call__(self, client: Client, x: Tensor) -> Outputs:
        """Return the fused representation u (B, d) and the logits (B, C) of the client's own head on it."""
        features = [client.auxiliary[self.small].features(x), client.model.features(x)]
        u = client.auxiliary[self.projector](torch.cat(features, dim=1))
        return Outputs(u, client.model.head(u))
