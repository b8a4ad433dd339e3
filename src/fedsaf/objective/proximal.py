"""The proximal term of FedProx."""

from __future__ import annotations

import torch
from torch import Tensor

from fedsaf.core.types import StepView


class Proximal:
    """Half the squared distance of the learnable parameters from the received ones: h of FedProx, Eq. (2), per mu.

    With weight mu its gradient is mu (w - w_t). It is zero, value and gradient, at the first step of a round.

    Args:
        received: name in ``scratch`` of the received model, see `fedsaf.exchange.snapshots.ReceivedModel`.
    """

    def __init__(self, received: str) -> None:
        self.received = received

    def __call__(self, view: StepView) -> Tensor:
        """Return a scalar >= 0, in float32 or wider; batch-normalisation statistics do not enter.

        Raises:
            KeyError: the callback that keeps the received model is missing.
        """
        start = view.scratch[self.received].model.parameters()
        pairs = zip(view.model.parameters(), start, strict=True)
        squares = [(w.float() - w_t.float()).square().sum() for w, w_t in pairs if w.requires_grad]
        return 0.5 * torch.stack(squares).sum()
