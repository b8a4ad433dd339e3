"""A client's model in two parts: x -> representation z -> logits.

Dimension letters: B batch, W width of a trunk, d feature dimension, C classes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from fedsaf.models.projection import build_feature_map


@cache
def _windows(width: int, feature_dim: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return which inputs each of the d outputs averages: indices (d * k,), validity (d, k) and window sizes (d,)."""
    with torch.inference_mode(False):  # kept tensors must serve training even if an evaluation asks first
        outputs = torch.arange(feature_dim, device=device)
        first = outputs * width // feature_dim
        sizes = -(-(outputs + 1) * width // feature_dim) - first
        offsets = torch.arange(int(sizes.max()), device=device)
        valid = offsets < sizes[:, None]
        return torch.where(valid, first[:, None] + offsets, 0).flatten(), valid, sizes


def pool_features(features: Tensor, feature_dim: int) -> Tensor:
    """Average neighbouring features, or repeat them, until there are d: (B, W) -> (B, d), without parameters.

    Output j is the mean of inputs floor(jW/d) ... ceil((j+1)W/d) - 1: adaptive average pooling, as in the models of
    FedTGP and FedSAF. Written with an index, because torch's has no deterministic gradient on a GPU and refuses to run
    where one is asked for. W = d returns the input itself. The rank of the output is at most min(W, d).

    >>> pool_features(torch.tensor([[1.0, 3.0, 5.0, 7.0]]), 2)
    tensor([[2., 6.]])
    >>> pool_features(torch.tensor([[1.0, 3.0, 5.0]]), 2)
    tensor([[2., 4.]])
    """
    width = features.shape[1]
    if width == feature_dim:
        return features
    indices, valid, sizes = _windows(width, feature_dim, features.device)
    return (features.index_select(1, indices).unflatten(1, valid.shape) * valid).sum(dim=-1) / sizes


class SplitModel(nn.Module):
    """Backbone and head around one feature dimension for all clients.

    The feature extractor f of the papers is ``backbone`` with ``feature_map``, their classifier h is ``head``.

    Args:
        backbone: trunk with attribute ``num_features`` = W that maps inputs to (B, W).
        head: maps (B, d) to (B, C).
        feature_dim: d.
        feature_map: ``"pool"`` is the HtFL papers' parameter-free :func:`pool_features`; the others learn, see
            :data:`fedsaf.models.projection.LEARNED_MAPS`.
        feature_end: what is done to the d features at last; None for nothing.

    Raises:
        ValueError: if ``feature_map`` is unknown.
    """

    def __init__(
        self,
        backbone: Any,
        head: nn.Module,
        feature_dim: int,
        feature_map: str = "pool",
        feature_end: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.feature_dim = feature_dim
        self.projection = build_feature_map(feature_map, backbone.num_features, feature_dim)
        self.feature_end = feature_end

    def features(self, x: Tensor) -> Tensor:
        """Map inputs (B, ...) to z (B, d)."""
        trunk = self.backbone(x)
        z = pool_features(trunk, self.feature_dim) if self.projection is None else self.projection(trunk)
        return z if self.feature_end is None else self.feature_end(z)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map inputs (B, ...) to z (B, d) and logits (B, C)."""
        z = self.features(x)
        return z, self.head(z)
