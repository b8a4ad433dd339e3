"""Gradient clipping, one global norm per network, as FML, FedKD, FedL2G and FedKTL prescribe."""

from __future__ import annotations

import torch
from torch.optim import Optimizer

from fedsaf.core.contracts import Callback, Client


class GradientClipping(Callback):
    """Shortens the gradient of the client's model, and that of each auxiliary, to a largest Euclidean length.

    Args:
        max_norm: > 0.

    Raises:
        ValueError: a length that is not positive.
    """

    def __init__(self, max_norm: float) -> None:
        if not max_norm > 0:
            raise ValueError(f"max_norm must be positive, got {max_norm}")
        self.max_norm = max_norm

    def on_before_optimizer_step(self, client: Client, optimizer: Optimizer) -> None:
        """Clip; a gradient that is NaN or Inf stays so, for the loss check to report."""
        for network in (client.model, *client.auxiliary.values()):
            torch.nn.utils.clip_grad_norm_(network.parameters(), self.max_norm)
