"""The linear map g of FedKTL, from features to the latents of the server's image generator."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from fedsaf.core.contracts import AuxiliaryModel
from fedsaf.models.context import ModelContext


@dataclass(frozen=True)
class LatentMap(AuxiliaryModel):
    """Builder of g: R^d -> R^w, w (d + 1) parameters.

    Attributes:
        latent_dim: w.
        shared: whether all clients start from the same draw.
        lr: learning rate; None for the client's.
    """

    latent_dim: int
    shared: bool
    lr: float | None

    def build(self, context: ModelContext, client: int) -> nn.Module:
        """Return the map with weights from the ambient generator."""
        return nn.Linear(context.group.feature_dim, self.latent_dim)
