"""Class means and counts: the only place where means over a class are taken.

Sums are products with a membership matrix, which is deterministic on every device (scatter-add on a GPU is not).
Dimension letters: B samples, K classes that occur, d feature dimension, C classes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedsaf.prototypes.class_table import ClassTable


def class_means(z: Tensor, y: Tensor, num_classes: int) -> ClassTable:
    """Mean representation of each class that occurs, P_i^c of FedProto, and its counts; differentiable in ``z``.

    Computed in float32 (float64 for float64 input) whatever the autocast.

    Args:
        z: (B, d) representations.
        y: (B,) labels.
        num_classes: C.

    Returns:
        Table of the K classes that occur; K = 0 for B = 0.

    Raises:
        ValueError: a label outside [0, C).

    >>> table = class_means(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([2, 0, 2]), num_classes=4)
    >>> table.labels.tolist(), table.rows.tolist(), table.counts.tolist()
    ([0, 2], [[3.0], [3.0]], [1, 0, 2, 0])
    """
    with torch.autocast(z.device.type, enabled=False):
        labels, sums, counts = _class_sums(z if z.dtype == torch.float64 else z.float(), y, num_classes)
        return ClassTable.of_rows(labels, sums / counts[:, None], num_classes, counts=counts)


class ClassMeans:
    """Class means of a stream of batches, summed in float64.

    The result depends on the order of the batches only in the last bits of a double, hardly ever in float32.

    Args:
        num_classes: C.
        width: d.
    """

    def __init__(self, num_classes: int, width: int) -> None:
        self._sums = torch.zeros(num_classes, width, dtype=torch.float64)
        self._counts = torch.zeros(num_classes, dtype=torch.int64)

    def add(self, z: Tensor, y: Tensor) -> None:
        """Add a batch; the sums live on the device of the last one.

        Args:
            z: (B, d) representations; no gradient is kept.
            y: (B,) labels.

        Raises:
            ValueError: a label outside [0, C).
        """
        labels, sums, counts = _class_sums(z.detach().double(), y, len(self._counts))
        self._sums, self._counts = self._sums.to(z.device), self._counts.to(z.device)
        self._sums[labels] += sums
        self._counts[labels] += counts

    def compute(self) -> ClassTable:
        """Return means and counts of the classes met so far, on the CPU in float32.

        Raises:
            FloatingPointError: a mean is NaN or Inf.
        """
        counts = self._counts.cpu()
        means = (self._sums.cpu() / counts.clamp_min(1)[:, None]).float()
        if not means.isfinite().all():
            raise FloatingPointError("class means: NaN or Inf in the representations")
        return ClassTable(means, counts > 0, counts)


def _class_sums(z: Tensor, y: Tensor, num_classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return labels (K,), sums (K, d) and counts (K,) of the classes that occur, ascending."""
    member = torch.arange(num_classes, device=y.device)[:, None] == y
    counts = member.sum(dim=1)
    labels = counts.nonzero().squeeze(1)
    counts = counts[labels]
    if int(counts.sum()) != len(y):
        raise ValueError(f"y must hold labels in [0, {num_classes}), got {y[(y < 0) | (y >= num_classes)].tolist()}")
    return labels, member[labels].to(z.dtype) @ z, counts
