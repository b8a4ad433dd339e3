"""The auxiliary task of FedKTL: features of generated images must tell, by a linear map, the latents behind them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fedsaf.core.types import StepView
from fedsaf.losses.numerics import inactive


class LatentRegression:
    """``MSE(g(f_i(x_G)), q_G)`` on one random batch of generated pairs per step.

    Args:
        channel: that brings the pairs (`fedsaf.exchange.generated.GeneratedPairs`).
        auxiliary: name of the linear map g.
        batch_size: pairs per step, drawn without replacement; all of them if they are fewer.
    """

    def __init__(self, channel: str, auxiliary: str, batch_size: int) -> None:
        if batch_size < 2:
            raise ValueError(f"batch_size must be at least 2, got {batch_size}")
        self.channel, self.auxiliary, self.batch_size = channel, auxiliary, batch_size

    def __call__(self, view: StepView) -> Tensor:
        """Return a scalar >= 0.

        A constant 0 without graph before there are two pairs: batch normalisation cannot train on one image.
        """
        pairs = view.received.get(self.channel)
        if pairs is None or len(pairs.images) < 2:
            return inactive(view.z)
        drawn = torch.randperm(len(pairs.images))[: self.batch_size].to(pairs.images.device)
        features, _ = view.model(pairs.images[drawn])
        return F.mse_loss(view.auxiliary[self.auxiliary](features).float(), pairs.latents[drawn])
