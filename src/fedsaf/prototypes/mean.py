"""Global prototypes by averaging, Eq. (3) of FedSAF: the plain example of a constructor.

A constructor is the aggregator of the prototypes channel: it knows class tables and its own state, nothing of models,
losses or clients. The others are with their methods: ``fedsaf.methods.fedtgp``, ``fedsa``, ``alignfed``, ``fedtsp`` and
``generator_prior``. Dimension letters: K classes of an upload, d feature dimension, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedsaf.core.checks import one_of
from fedsaf.core.contracts import Aggregator
from fedsaf.core.types import Message, ServerContext, Upload
from fedsaf.prototypes.class_table import ClassTable, uploaded_pairs


class Mean(Aggregator):
    """Mean of the uploaded class means, over the clients that hold the class (FedProto, FedSAF, FedProc).

    Args:
        weighting: ``samples``: P_g^c = sum_i n_ic P_i^c / sum_i n_ic; ``uniform``: every holder counts once.
        absent: a class known before but missing from the uploads of a round: ``keep`` its last prototype, or ``drop``
            it until it is uploaded again.
    """

    def __init__(self, weighting: str, absent: str) -> None:
        self.needs_counts = one_of("weighting", weighting, ("samples", "uniform")) == "samples"
        self.absent = one_of("absent", absent, ("keep", "drop"))

    def prepare(self, context: ServerContext) -> None:
        """Start without any prototype; the seed is not used."""
        self._table = ClassTable.empty(context.num_classes, context.feature_dim)

    def update(self, uploads: Sequence[Upload], round: int) -> dict[str, float]:
        """Average the uploads of one round, in float64 and in the order of client ids.

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
