"""Two-level use of an alignment loss, Eq. (15)-(19) of FedSAF: on batch class means, and on single samples.

The levels are terms of the objective, called with a StepView; weights are the objective's business.
Dimension letters: B batch, K classes of the batch, d feature dimension, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from fedsaf.core.checks import one_of
from fedsaf.core.types import StepView
from fedsaf.losses.alignment import AlignmentLoss, Uniformity
from fedsaf.losses.numerics import inactive, promoted
from fedsaf.prototypes.class_means import class_means


class _Level(ABC):
    """Rows of one batch against ``received["prototypes"]``, a ClassTable on the device of the batch."""

    def __init__(self, loss: AlignmentLoss, missing_rows: str) -> None:
        """Keep the loss and the rule for rows whose class has no global prototype.

        Args:
            loss: compares rows with prototypes.
            missing_rows: ``skip`` leaves such rows out. ``self``, as public code does, makes the row its own detached
                target: no pull for coordinate losses, but a larger divisor; for structural losses the client's own
                coordinates enter the target geometry. A contrastive loss has no positive for them and skips them.

        Raises:
            ValueError: another rule.
        """
        self.loss, self.missing_rows = loss, one_of("missing_rows", missing_rows, ("skip", "self"))

    def __call__(self, view: StepView) -> Tensor:
        """Return the loss of this level.

        Returns:
            Scalar; a constant 0 without graph before the first prototypes, for a batch none of whose classes has one,
            and where the loss itself has nothing to compare.
        """
        table = view.received.get("prototypes")
        if table is None:
            return inactive(view.z)
        rows, labels = self._rows(view, num_classes=len(table.mask))
        known = table.mask[labels]
        num_known = int(known.sum())
        if num_known == 0:
            return inactive(view.z)
        targets = table.values[labels].to(rows.dtype)
        if num_known < len(labels):
            if self.missing_rows == "skip":
                rows, targets, labels = rows[known], targets[known], labels[known]
            else:
                targets = torch.where(known[:, None], targets, rows.detach())
        return self.loss(rows, targets, labels, table)

    @abstractmethod
    def _rows(self, view: StepView, num_classes: int) -> tuple[Tensor, Tensor]:
        """Return rows (n, d), with gradient, and their labels (n,)."""


class PrototypeLevel(_Level):
    """Class means of the batch, with gradient, ascending by class, against global prototypes: Eq. (15)-(16).

    With a structural loss it needs three classes in the batch: it is silent on every binary task.
    """

    def _rows(self, view: StepView, num_classes: int) -> tuple[Tensor, Tensor]:
        means = class_means(view.z, view.y, num_classes)
        labels = means.labels
        return means.values[labels], labels


class InstanceLevel(_Level):
    """Each sample against the global prototype of its class: Eq. (17)-(18).

    With a structural loss it needs three samples of at least two classes.
    """

    def _rows(self, view: StepView, num_classes: int) -> tuple[Tensor, Tensor]:
        return promoted(view.z), view.y


class UniformityTerm(InstanceLevel):
    """The uniformity part of the contrastive loss over samples, as an addition to any other loss (FedSAF, Sec. V-A)."""

    def __init__(self, temperature: float) -> None:
        """Keep the temperature, > 0; samples whose class has no prototype are left out."""
        super().__init__(Uniformity(temperature), missing_rows="skip")
