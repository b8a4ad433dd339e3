"""Loss terms: each maps what one training step shows (`StepView`) to a scalar and knows no other term."""

from __future__ import annotations

from typing import Protocol

import torch.nn.functional as F
from torch import Tensor

from fedsaf.core.types import StepView


class Term(Protocol):
    """A loss term.

    A constant without graph (``requires_grad`` False) says that the term had nothing to act on in this step; it is
    then neither added nor counted as active.
    """

    def __call__(self, view: StepView) -> Tensor:
        """Return the scalar value of this term for one step."""
        ...


class CrossEntropy:
    """Mean cross-entropy of the logits against integer labels."""

    def __call__(self, view: StepView) -> Tensor:
        """Return a scalar >= 0, in float32 whatever the precision of the logits."""
        return F.cross_entropy(view.logits.float(), view.y)
