"""FedL2G's term against the guiding vector of a class, from a `ClassTable` in ``view.received``."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from fedsaf.core.types import StepView


class Guidance:
    """Mean squared distance of features or logits to the guiding vector of their class, FedL2G.

    Args:
        channel: where the (C, d) or (C, C) table arrives.
        space: ``features`` or ``logits``.
    """

    def __init__(self, channel: str, space: str) -> None:
        if space not in ("features", "logits"):
            raise ValueError(f"space of the guidance is {space!r}; choose features or logits")
        self.channel, self.space = channel, space

    def __call__(self, view: StepView) -> Tensor:
        """Return the mean over all entries, a scalar >= 0."""
        rows = view.z if self.space == "features" else view.logits
        return F.mse_loss(rows.float(), view.received[self.channel].values[view.y])
