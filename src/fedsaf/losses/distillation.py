"""Distillation: what a distribution of one network has to say to another's.

Dimension letters: B batch, C classes.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

REDUCTIONS = ("batchmean", "elementwise_mean")


def divergence(student: Tensor, teacher: Tensor, reduction: str) -> Tensor:
    """Kullback-Leibler divergence KL(teacher || student) of two softmax distributions.

    Args:
        student: (B, C) logits.
        teacher: (B, C) logits.
        reduction: ``batchmean``, the mean over samples of the sum over classes; ``elementwise_mean``, C times smaller.

    Returns:
        Scalar >= 0, float32.

    >>> import torch
    >>> divergence(torch.zeros(1, 2), torch.tensor([[0.0, float("-inf")]]), "batchmean")
    tensor(0.6931)
    """
    value = F.kl_div(F.log_softmax(student.float(), dim=1), F.softmax(teacher.float(), dim=1), reduction="batchmean")
    return value if reduction == "batchmean" else value / student.shape[1]
