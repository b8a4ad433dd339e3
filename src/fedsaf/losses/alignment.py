"""The alignment losses behind one call: ``loss(rows, targets, labels, table) -> scalar``.

The functions are in ``coordinate``, ``structural`` and ``contrastive``; here they get their settings, and one
signature, so that a level (``two_level``) need not know which of its arguments a loss reads. A scalar without graph
(``requires_grad`` False) says that the loss had nothing to compare: the term was inactive.
Dimension letters: n rows, d feature dimension.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from fedsaf.losses.contrastive import batch_contrastive, contrastive, uniformity
from fedsaf.losses.coordinate import cosine, l2, mse
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


class NoAlignment:
    """The constant 0: no alignment."""

    def __call__(self, rows: Tensor, targets: Tensor, labels: Tensor, table: ClassTable) -> Tensor:
        """Return a constant 0 without graph."""
        return inactive(rows)


class MSE:
    """Squared distance of matched rows, see :func:`fedsaf.losses.coordinate.mse`."""

    def __init__(self, reduction: str) -> None:
        """Keep the reduction, ``mean`` or ``rowsum``."""
        if reduction not in ("mean", "rowsum"):
            raise ValueError(f"reduction must be 'mean' or 'rowsum', got {reduction!r}")
        self.reduction = reduction

    def __call__(self, rows: Tensor, targets: Tensor, labels: Tensor, table: ClassTable) -> Tensor:
        """Return the loss of matched rows."""
        return mse(rows, targets, self.reduction)


class L2:
    """Distance of matched rows, see :func:`fedsaf.losses.coordinate.l2`."""

    def __call__(self, rows: Tensor, targets: Tensor, labels: Tensor, table: ClassTable) -> Tensor:
        """Return the loss of matched rows."""
        return l2(rows, targets)


class Cosine:
    """One minus the mean cosine of matched rows, see :func:`fedsaf.losses.coordinate.cosine`."""

    def __call__(self, rows: Tensor, targets: Tensor, labels: Tensor, table: ClassTable) -> Tensor:
        """Return the loss of matched rows."""
        return cosine(rows, targets)


class GCSA:
    """Distance of centred Gram matrices, see :func:`fedsaf.losses.structural.gcsa`."""

    def __call__(self, rows: Tensor, targets: Tensor, labels: Tensor, table: ClassTable) -> Tensor:
        """Return the loss of matched rows."""
        return gcsa(rows, targets)


class RCSA:
    """Distance of dissimilarity matrices, see :func:`fedsaf.losses.structural.rcsa`."""

    def __call__(self, rows: Tensor, targets: Tensor, labels: Tensor, table: ClassTable) -> Tensor:
        """Return the loss of matched rows."""
        return rcsa(rows, targets)


class _AgainstTable:
    def __init__(self, temperature: float) -> None:
        """Keep the temperature, > 0."""
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        self.temperature = temperature


class Contrastive(_AgainstTable):
    """InfoNCE against all class prototypes, see :func:`fedsaf.losses.contrastive.contrastive`."""

    def __init__(self, temperature: float, double_positive: bool) -> None:
        """Keep the temperature, > 0, and whether the positive counts twice in the sum."""
        super().__init__(temperature)
        self.double_positive = double_positive

    def __call__(self, rows: Tensor, targets: Tensor, labels: Tensor, table: ClassTable) -> Tensor:
        """Return the loss of rows against the table."""
        return contrastive(rows, labels, table, self.temperature, self.double_positive)


class BatchContrastive(_AgainstTable):
    """Contrast over the rows of a batch, see :func:`fedsaf.losses.contrastive.batch_contrastive`."""

    def __call__(self, rows: Tensor, targets: Tensor, labels: Tensor, table: ClassTable) -> Tensor:
        """Return the loss of rows against the table."""
        return batch_contrastive(rows, labels, table, self.temperature)


class Uniformity(_AgainstTable):
    """Distance from all prototypes, see :func:`fedsaf.losses.contrastive.uniformity`."""

    def __call__(self, rows: Tensor, targets: Tensor, labels: Tensor, table: ClassTable) -> Tensor:
        """Return the loss of rows against the table."""
        return uniformity(rows, labels, table, self.temperature)
