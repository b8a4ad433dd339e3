"""Terms against one vector per class that the server sent: FedDistill's logits, FedL2G's guidance.

Both read a `ClassTable` from ``view.received``. Dimension letters: B batch, d feature dimension, C classes.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from fedsaf.core.types import StepView
from fedsaf.losses.numerics import inactive


class LogitDistillation:
    """Soft cross-entropy of the logits against the global mean logits of their class, FedDistill (Jeong et al., 2018).

    Args:
        channel: where the (C, C) table arrives.
        targets: ``softmax``: probabilities of the mean logits; ``raw``: the mean logits themselves in their place, as
            the public benchmark library has it (register entry D16).
    """

    def __init__(self, channel: str, targets: str) -> None:
        if targets not in ("softmax", "raw"):
            raise ValueError(f"targets of the distillation are {targets!r}; choose softmax or raw")
        self.channel, self.targets = channel, targets

    def __call__(self, view: StepView) -> Tensor:
        """Return the mean over the samples whose class has global logits; a constant 0 if there is none."""
        table = view.received.get(self.channel)
        if table is None:
            return inactive(view.logits)
        known = table.mask[view.y]
        if not bool(known.any()):
            return inactive(view.logits)
        targets = table.values[view.y[known]]
        if self.targets == "softmax":
            targets = targets.softmax(dim=1)
        return -(targets * F.log_softmax(view.logits[known].float(), dim=1)).sum(dim=1).mean()


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
