"""Prediction rules: how a client answers, from its features and logits."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor


class Predictor(Protocol):
    """A prediction rule. ``client`` is the client at work."""

    def __call__(self, client: Any, z: Tensor, logits: Tensor) -> Tensor:
        """Return the predicted class of each row, (B,) int64; -1 where no answer is possible."""
        ...


class Classifier:
    """The class of the largest logit of the client's own classifier."""

    def __call__(self, client: Any, z: Tensor, logits: Tensor) -> Tensor:
        """Return (B,) int64 in [0, C)."""
        return logits.argmax(dim=1)


class NearestPrototype:
    """The class whose global prototype is nearest in Euclidean distance, FedProto; ties go to the lowest class.

    Args:
        channel: name of the channel that brings the prototypes.

    Only classes that have a prototype can be answered. Before any prototype exists every answer is -1, which counts as
    wrong: the accuracy of round 0 is 0.
    """

    def __init__(self, channel: str) -> None:
        self.channel = channel

    def __call__(self, client: Any, z: Tensor, logits: Tensor) -> Tensor:
        """Return (B,) int64 in [-1, C)."""
        table = client.received.get(self.channel)
        if table is None or not bool(table.mask.any()):
            return torch.full((len(z),), -1, dtype=torch.int64, device=z.device)
        distance = torch.cdist(z.float(), table.values)
        return distance.masked_fill(~table.mask, float("inf")).argmin(dim=1)
