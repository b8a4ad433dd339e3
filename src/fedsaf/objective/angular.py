"""Cross-entropy on cosines: of features to class vectors from text (FedTSP), of outputs to a fixed frame (FedKTL).

Dimension letters: B batch, d feature dimension, C classes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fedsaf.core.types import StepView
from fedsaf.prototypes.text_prior import scaled_cosine_loss

COSINE_LIMIT = 1 - 1e-7
"""Cosines are clamped to this before the arc cosine, whose slope is infinite at 1."""


class ScaledCosine:
    """The client term of FedTSP: ``CE(e^s cos(z_j, T^c), y_j)`` over all classes, s and T fixed.

    Args:
        channel: that brings T and, as ``<channel>.scale``, s.
    """

    def __init__(self, channel: str) -> None:
        self.channel = channel

    def __call__(self, view: StepView) -> Tensor:
        """Return a scalar >= 0 in float32 whatever the precision of z."""
        with torch.autocast(view.z.device.type, enabled=False):
            table, scale = view.received[self.channel].values, view.received[f"{self.channel}.scale"]
            return scaled_cosine_loss(view.z.float(), view.y, table, scale)


def angular_margin_loss(embeddings: Tensor, labels: Tensor, frame: Tensor, scale: float, margin: float) -> Tensor:
    """Cross-entropy of ``scale * cos(theta_c + margin [c = y])``, theta_c the angle of a row to direction c.

    Args:
        embeddings: (B, C), of any length.
        labels: (B,).
        frame: (C, C) unit rows, one direction per class.
        scale: > 0.
        margin: radians added to the angle of the true class.

    >>> angular_margin_loss(torch.eye(2), torch.tensor([0, 1]), torch.eye(2), 1.0, 0.0)  # log(e + 1) - 1
    tensor(0.3133)
    """
    cosines = (F.normalize(embeddings, dim=1, eps=1e-8) @ frame.T).clamp(-COSINE_LIMIT, COSINE_LIMIT)
    true = F.one_hot(labels, len(frame)).bool()
    return F.cross_entropy(scale * torch.where(true, (cosines.acos() + margin).cos(), cosines), labels)


class AngularMargin:
    """The classification loss of FedKTL: outputs e of the head against a frame that all clients share.

    Args:
        channel: that brings the frame.
        scale: see `angular_margin_loss`.
        margin: see `angular_margin_loss`.
    """

    def __init__(self, channel: str, scale: float, margin: float) -> None:
        if not scale > 0:
            raise ValueError(f"scale must be positive, got {scale}")
        self.channel, self.scale, self.margin = channel, scale, margin

    def __call__(self, view: StepView) -> Tensor:
        """Return a scalar >= 0 in float32 whatever the precision of the outputs."""
        with torch.autocast(view.z.device.type, enabled=False):
            frame = view.received[self.channel].values
            return angular_margin_loss(view.logits.float(), view.y, frame, self.scale, self.margin)
