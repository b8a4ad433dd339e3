"""The alignment losses behind one call: ``loss(rows, targets, labels, table) -> scalar``.

The functions are in ``coordinate``, ``structural`` and ``contrastive``; here they get their settings, and one
signature, so that a level (``two_level``) need not know which of its arguments a loss reads. A scalar without graph
(``requires_grad`` False) says that the loss had nothing to compare: the term was inactive.
Dimension letters: n rows, d feature dimension.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from torch import Tensor

from fedsaf.core.checks import one_of, positive
from fedsaf.losses.contrastive import batch_contrastive, contrastive, uniformity
from fedsaf.losses.coordinate import REDUCTIONS, cosine, l2, mse
from fedsaf.losses.numerics import inactive
from fedsaf.losses.structural import gcsa, rcsa
from fedsaf.prototypes.class_table import ClassTable


class AlignmentLoss(Protocol):
    """What a level asks of a loss."""

    def __call__(self, rows: Tensor, targets: Tensor, labels: Tensor, table: ClassTable) -> Tensor:
        """Compare the client's rows with the global prototypes.

        Args:
            rows: (n, d) of the client, with gradient.
            targets: (n, d), the prototype of each row's class.
            labels: (n,) class of each row.
            table: all global prototypes.

        Returns:
            Scalar; without graph where there is nothing to compare.
        """


class _OfMatchedRows:
    """A loss that reads rows and targets alone."""

    compare: ClassVar[staticmethod[[Tensor, Tensor], Tensor]]

    def __call__(self, rows: Tensor, targets: Tensor, labels: Tensor, table: ClassTable) -> Tensor:
        """Return the loss of matched rows."""
        return type(self).compare(rows, targets)


class L2(_OfMatchedRows):
    """Distance of matched rows, see `fedsaf.losses.coordinate.l2`."""

    compare = staticmethod(l2)


class Cosine(_OfMatchedRows):
    """One minus the mean cosine of matched rows, see `fedsaf.losses.coordinate.cosine`."""

    compare = staticmethod(cosine)


class GCSA(_OfMatchedRows):
    """Distance of centred Gram matrices, see `fedsaf.losses.structural.gcsa`."""

    compare = staticmethod(gcsa)


class RCSA(_OfMatchedRows):
    """Distance of dissimilarity matrices, see `fedsaf.losses.structural.rcsa`."""

    compare = staticmethod(rcsa)


class NoAlignment:
    """The constant 0 without graph: no alignment."""

    def __call__(self, rows: Tensor, targets: Tensor, labels: Tensor, table: ClassTable) -> Tensor:
        """Return 0."""
        return inactive(rows)


class MSE:
    """Squared distance of matched rows, see `fedsaf.losses.coordinate.mse`.

    Args:
        reduction: ``mean`` or ``rowsum``.
    """

    def __init__(self, reduction: str) -> None:
        self.reduction = one_of("reduction", reduction, REDUCTIONS)

    def __call__(self, rows: Tensor, targets: Tensor, labels: Tensor, table: ClassTable) -> Tensor:
        """Return the loss of matched rows."""
        return mse(rows, targets, self.reduction)


class Contrastive:
    """InfoNCE against all class prototypes, see `fedsaf.losses.contrastive`.

    Args:
        temperature: > 0.
        double_positive: whether the positive counts twice in the sum; of axis ``class``.
        axis: of the softmax: ``class``, or ``batch``, as public code of AlignFed has it (register entry D12).
    """

    def __init__(self, temperature: float, double_positive: bool, axis: str) -> None:
        positive(temperature=temperature)
        self.temperature, self.double_positive = temperature, double_positive
        self.axis = one_of("axis", axis, ("class", "batch"))
        if double_positive and axis == "batch":
            raise ValueError("double_positive is true, which axis 'batch' does not read; take axis class")

    def __call__(self, rows: Tensor, targets: Tensor, labels: Tensor, table: ClassTable) -> Tensor:
        """Return the loss of rows against the table."""
        if self.axis == "batch":
            return batch_contrastive(rows, labels, table, self.temperature)
        return contrastive(rows, labels, table, self.temperature, self.double_positive)


class Uniformity:
    """Distance from all prototypes, see `fedsaf.losses.contrastive.uniformity`.

    Args:
        temperature: > 0.
    """

    def __init__(self, temperature: float) -> None:
        positive(temperature=temperature)
        self.temperature = temperature

    def __call__(self, rows: Tensor, targets: Tensor, labels: Tensor, table: ClassTable) -> Tensor:
        """Return the loss of rows against the table."""
        return uniformity(rows, labels, table, self.temperature)
