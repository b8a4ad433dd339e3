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
from fedsaf.prototypes.table import checked_messages, existing_rows


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
        self._values = torch.zeros(context.num_classes, context.feature_dim)
        self._mask = torch.zeros(context.num_classes, dtype=torch.bool)

    def update(self, uploads: Sequence[Upload], round: int) -> dict[str, float]:
        """Average the uploads of one round, in float64 and in the order of client ids.

        Args:
            uploads: messages with ``labels`` (K,), ``means`` (K, d) and, if ``needs_counts``, ``counts`` (K,);
                K may be 0.
            round: not used.

        Returns:
            ``num_prototypes``: classes that have a prototype now.

        Raises:
            ValueError: malformed message, or a count below 1.
            FloatingPointError: NaN or Inf in the means.
        """
        sums = torch.zeros(self._values.shape, dtype=torch.float64)
        weights = torch.zeros(len(self._mask), dtype=torch.float64)
        for message in checked_messages(uploads, *self._values.shape):
            labels = message["labels"]
            weight = message["counts"].double() if self.needs_counts else torch.ones(len(labels)).double()
            if (weight < 1).any():
                raise ValueError(f"counts must be at least 1, got {message['counts'].tolist()}")
            sums[labels] += weight[:, None] * message["means"].double()
            weights[labels] += weight
        uploaded = weights > 0
        if self.absent == "drop":
            self._values.zero_()
            self._mask.zero_()
        self._values[uploaded] = (sums[uploaded] / weights[uploaded, None]).float()
        self._mask |= uploaded
        return {"num_prototypes": float(self._mask.sum())}

    def broadcast(self) -> Message | None:
        """Return ``labels`` and ``values`` of the classes that have a prototype; None before there is one."""
        return existing_rows(self._values, self._mask)

    def state(self) -> dict[str, Tensor]:
        """Return the live state."""
        return {"values": self._values, "mask": self._mask}
