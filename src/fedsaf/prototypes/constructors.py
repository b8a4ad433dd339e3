"""Global prototypes by averaging, Eq. (3) of FedSAF; the other constructors are in ``trainable`` and ``hypersphere``.

A constructor is the aggregator of the prototypes channel: it knows class statistics and its own state, nothing of
models, losses or clients.
Dimension letters: N clients, K classes of an upload, d feature dimension, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedsaf.core.contracts import Aggregator
from fedsaf.core.types import Message, ServerContext, Upload
from fedsaf.prototypes.class_table import ClassTable, uploaded_pairs


class Mean(Aggregator):
    """Mean of the uploaded class means, over the clients that hold the class (FedProto, FedSAF, FedProc).

    Attributes:
        needs_counts: whether clients must send the number of samples behind each mean.
        needs_uploads: whether clients must send their means at all.
    """

    def __init__(self, weighting: str, absent: str) -> None:
        """Choose the mean.

        Args:
            weighting: ``samples``: P_g^c = sum_i n_ic P_i^c / sum_i n_ic; ``uniform``: every holder counts once.
            absent: a class known before but missing from the uploads of a round: ``keep`` its last prototype, or
                ``drop`` it until it is uploaded again.

        Raises:
            ValueError: another choice.
        """
        if weighting not in ("samples", "uniform"):
            raise ValueError(f"weighting must be 'samples' or 'uniform', got {weighting!r}")
        if absent not in ("keep", "drop"):
            raise ValueError(f"absent must be 'keep' or 'drop', got {absent!r}")
        self.needs_counts = weighting == "samples"
        self.absent = absent

    def prepare(self, context: ServerContext) -> None:
        """Start without any prototype; the seed is not used."""
        self._table = ClassTable.empty(context.num_classes, context.feature_dim)

    def update(self, uploads: Sequence[Upload], round: int) -> dict[str, float]:
        """Average the uploads of one round, in float64 and in the order of client ids.

        Args:
            uploads: messages with ``labels`` (K,), ``values`` (K, d) and, if ``needs_counts``, ``counts`` (K,);
                K may be 0.
            round: not used.

        Returns:
            ``num_prototypes``: classes that have a prototype now.

        Raises:
            ValueError: malformed message, or a count below 1.
            FloatingPointError: NaN or Inf in the values.
        """
        values, mask = self._table.values, self._table.mask
        pairs = uploaded_pairs(uploads, *values.shape)
        weight = pairs.counts.double() if self.needs_counts else torch.ones(len(pairs.labels)).double()
        if (weight < 1).any():
            raise ValueError(f"counts must be at least 1, got {pairs.counts.tolist()}")
        sums = torch.zeros(values.shape, dtype=torch.float64)
        sums.index_add_(0, pairs.labels, weight[:, None] * pairs.values.double())
        weights = torch.zeros(len(mask), dtype=torch.float64).index_add_(0, pairs.labels, weight)
        uploaded = weights > 0
        if self.absent == "drop":
            values.zero_()
            mask.zero_()
        values[uploaded] = (sums[uploaded] / weights[uploaded, None]).float()
        mask |= uploaded
        return {"num_prototypes": float(mask.sum())}

    def broadcast(self) -> Message | None:
        """Return ``labels`` and ``values`` of the classes that have a prototype; None before there is one."""
        return self._table.to_broadcast()

    def state(self) -> dict[str, Tensor]:
        """Return the live state."""
        return {"values": self._table.values, "mask": self._table.mask}
