"""Mutual distillation between a client's model and a auxiliary: the terms of FML and FedKD, and FedMRL's nested head.

The auxiliary's features and logits of the step stand in ``view.scratch`` under its name
(`fedsaf.models.auxiliary.WithAuxiliary`). p are the probabilities of the client's model, q those of the auxiliary.
Dimension letters: B batch, d feature dimension, C classes.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from fedsaf.core.types import StepView

REDUCTIONS = ("batchmean", "elementwise_mean")
LEAST_ERROR = 1e-8
"""FedKD divides by the sum of both cross-entropies, which is floored here."""


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


class AuxiliaryCrossEntropy:
    """Mean cross-entropy of the auxiliary's logits.

    Args:
        auxiliary: its name.
    """

    def __init__(self, auxiliary: str) -> None:
        self.auxiliary = auxiliary

    def __call__(self, view: StepView) -> Tensor:
        """Return a scalar >= 0."""
        return F.cross_entropy(view.outputs[self.auxiliary][1].float(), view.y)


class NestedCrossEntropy:
    """Cross-entropy of a auxiliary's head on the first entries of the fused representation, FedMRL.

    Args:
        auxiliary: the small model; its head reads as many entries as its own features have.
    """

    def __init__(self, auxiliary: str) -> None:
        self.auxiliary = auxiliary

    def __call__(self, view: StepView) -> Tensor:
        """Return a scalar >= 0."""
        small = view.auxiliary[self.auxiliary]
        return F.cross_entropy(small.head(view.z[:, : small.feature_dim]).float(), view.y)


class Distillation:
    """One direction of a mutual distillation: KL(q || p) trains the model, KL(p || q) the auxiliary.

    Args:
        auxiliary: its name.
        student: ``model`` or ``auxiliary``.
        kl_reduction: see `divergence` (register entry D15).
        detach_teacher: whether the teacher, and the divisor of ``adaptive``, are constants (D15).
        adaptive: divide by CE(p) + CE(q), so that poor networks teach little (FedKD).
    """

    def __init__(self, auxiliary: str, student: str, kl_reduction: str, detach_teacher: bool, adaptive: bool) -> None:
        if student not in ("model", "auxiliary"):
            raise ValueError(f"student is {student!r}; choose model or auxiliary")
        if kl_reduction not in REDUCTIONS:
            raise ValueError(f"kl_reduction is {kl_reduction!r}; choose one of {', '.join(REDUCTIONS)}")
        self.auxiliary, self.student = auxiliary, student
        self.kl_reduction, self.detach_teacher, self.adaptive = kl_reduction, detach_teacher, adaptive

    def __call__(self, view: StepView) -> Tensor:
        """Return a scalar >= 0."""
        student, teacher = view.logits, view.outputs[self.auxiliary][1]
        if self.student == "auxiliary":
            student, teacher = teacher, student
        value = divergence(student, teacher.detach() if self.detach_teacher else teacher, self.kl_reduction)
        return value / joint_error(view, self.auxiliary, self.detach_teacher) if self.adaptive else value


class HiddenDistillation:
    """Hidden term of FedKD, in both directions: 2 MSE(f(x), W_h f_m(x)) / (CE(p) + CE(q)), mean over entries.

    The mentor follows the mapped mentee and the mapped mentee follows the mentor. With constant teachers each network
    receives the gradient of one MSE; the public code backpropagates both into all, so that it counts twice (D15).

    Args:
        auxiliary: the mentee.
        hidden_map: name of the auxiliary W_h.
        detach_teacher: see `Distillation`.
    """

    def __init__(self, auxiliary: str, hidden_map: str, detach_teacher: bool) -> None:
        self.auxiliary, self.hidden_map, self.detach_teacher = auxiliary, hidden_map, detach_teacher

    def __call__(self, view: StepView) -> Tensor:
        """Return a scalar >= 0."""
        mentor = view.z.float()
        mentee = view.auxiliary[self.hidden_map](view.outputs[self.auxiliary][0]).float()
        targets = (mentee.detach(), mentor.detach()) if self.detach_teacher else (mentee, mentor)
        value = F.mse_loss(mentor, targets[0]) + F.mse_loss(mentee, targets[1])
        return value / joint_error(view, self.auxiliary, self.detach_teacher)


def joint_error(view: StepView, auxiliary: str, detach: bool) -> Tensor:
    """Return CE(p) + CE(q) of the step, at least 1e-8."""
    both = (view.logits, view.outputs[auxiliary][1])
    error = sum(F.cross_entropy(logits.float(), view.y) for logits in both).clamp_min(LEAST_ERROR)
    return error.detach() if detach else error
