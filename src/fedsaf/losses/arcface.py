"""Additive angular margin (ArcFace; Deng et al., 2019). Dimension letters: B batch, d width, C classes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

COSINE_LIMIT = 1 - 1e-7
"""Cosines are clamped to this before the arc cosine, whose slope is infinite at 1."""


def arcface(embeddings: Tensor, labels: Tensor, directions: Tensor, scale: float, margin: float) -> Tensor:
    """Cross-entropy of ``scale * cos(theta_c + margin [c = y])``, theta_c the angle of a row to direction c.

    Args:
        embeddings: (B, d), of any length; a zero row has cosine 0 with every direction.
        labels: (B,).
        directions: (C, d) unit rows.
        scale: > 0.
        margin: radians added to the angle of the true class.

    >>> arcface(torch.eye(2), torch.tensor([0, 1]), torch.eye(2), 1.0, 0.0)  # log(e + 1) - 1
    tensor(0.3133)
    """
    cosines = (F.normalize(embeddings, dim=1, eps=1e-8) @ directions.T).clamp(-COSINE_LIMIT, COSINE_LIMIT)
    true = F.one_hot(labels, len(directions)).bool()
    return F.cross_entropy(scale * torch.where(true, (cosines.acos() + margin).cos(), cosines), labels)
