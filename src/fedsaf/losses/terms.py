"""Loss terms: each maps what one training step shows (`StepView`) to a scalar and knows no other term."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from fedsaf.core.types import StepView


class CrossEntropy:
    """Mean cross-entropy of the logits against integer labels."""

    def __call__(self, view: StepView) -> Tensor:
        """Return a scalar >= 0, in float32 whatever the precision of the logits."""
        return F.cross_entropy(view.logits.float(), view.y)
