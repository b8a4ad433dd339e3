"""Class means and counts: the only place where means over a class are taken.

Sums are products with a membership matrix, which is deterministic on every device (scatter-add on a GPU is not).
Dimension letters: B samples, K classes that occur, d feature dimension, C classes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedsaf.core.types import ClassStatistics


def class_means(z: Tensor, y: Tensor, num_classes: int) -> ClassStatistics:
    """Mean representation of each class that occurs, P_i^c of FedProto; differentiable in ``z``.

    Computed in float32 (float64 for float64 input) whatever the autocast.

    Args:
        z: (B, d) representations.
        y: (B,) labels.
        num_classes: C.

    Returns:
        Statistics of the K classes that occur, ascending; K = 0 for B = 0.

    Raises:
        ValueError: a label outside [0, C).

    >>> statistics = class_means(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([2, 0, 2]), num_classes=4)
    >>> statistics.labels.tolist(), statistics.means.tolist(), statistics.counts.tolist()
    ([0, 2], [[3.0], [3.0]], [1, 2])
    """
    with torch.autocast(z.device.type, enabled=False):
        labels, sums, counts = _class_sums(z if z.dtype == torch.float64 else z.float(), y, num_classes)
        return ClassStatistics(labels, sums / counts[:, None], counts)


class ClassMeans:
    """Class means of a stream of batches, summed in float64.

    The result depends on the order of the batches only in the last bits of a double, hardly ever in float32.
    """

    def __init__(self, num_classes: int, feature_dim: int) -> None:
        """Start with no sample.

        Args:
            num_classes: C.
            feature_dim: d.
        """
        self._sums = torch.zeros(num_classes, feature_dim, dtype=torch.float64)
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

    def compute(self) -> ClassStatistics:
        """Return the means of the classes met so far, on the CPU in float32.

        Raises:
            FloatingPointError: a mean is NaN or Inf.
        """
        sums, counts = self._sums.cpu(), self._counts.cpu()
        labels = counts.nonzero().squeeze(1)
        means = (sums[labels] / counts[labels, None]).float()
        if not means.isfinite().all():
            raise FloatingPointError("class means: NaN or Inf in the representations")
        return ClassStatistics(labels, means, counts[labels])


def _class_sums(z: Tensor, y: Tensor, num_classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return labels (K,), sums (K, d) and counts (K,) of the classes that occur, ascending."""
    member = torch.arange(num_classes, device=y.device)[:, None] == y
    counts = member.sum(dim=1)
    labels = counts.nonzero().squeeze(1)
    counts = counts[labels]
    if int(counts.sum()) != len(y):
        raise ValueError(f"y must hold labels in [0, {num_classes}), got {y[(y < 0) | (y >= num_classes)].tolist()}")
    return labels, member[labels].to(z.dtype) @ z, counts
