"""Prediction rules: how a client answers, from its features and logits."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from fedsaf.core.contracts import Client
from fedsaf.prototypes.class_table import ClassTable


class Classifier:
    """The class of the largest logit of the client's own classifier."""

    def __call__(self, client: Client, z: Tensor, logits: Tensor) -> Tensor:
        """Return (B,) int64 in [0, C)."""
        return logits.argmax(dim=1)


class NearestPrototype:
    """The class whose global prototype is nearest in Euclidean distance, FedProto; ties go to the lowest class.

    Args:
        channel: name of the channel that brings the prototypes.

    Only classes that have a prototype, and that somebody has uploaded (`ClassTable.seen`), can be answered. Before any
    exists every answer is -1, which counts as wrong: the accuracy of round 0 is 0.
    """

    def __init__(self, channel: str) -> None:
        self.channel = channel

    def __call__(self, client: Client, z: Tensor, logits: Tensor) -> Tensor:
        """Return (B,) int64 in [-1, C)."""
        return _best(client.received.get(self.channel), z, lambda values: -torch.cdist(z.float(), values))


class CosinePrototype:
    """The class whose global prototype points most nearly where the row does; ties go to the lowest class.

    Args:
        channel: name of the channel that brings the prototypes.
        of: ``features``, or ``logits``: a classifier with fixed directions in R^C, as FedKTL has.

    Which classes can be answered: as with `NearestPrototype`.
    """

    def __init__(self, channel: str, of: str) -> None:
        if of not in ("features", "logits"):
            raise ValueError(f"of must be 'features' or 'logits', got {of!r}")
        self.channel, self.of = channel, of

    def __call__(self, client: Client, z: Tensor, logits: Tensor) -> Tensor:
        """Return (B,) int64 in [-1, C)."""
        rows = (z if self.of == "features" else logits).float()
        return _best(client.received.get(self.channel), rows, lambda values: rows @ F.normalize(values, eps=1e-8).T)


def _best(table: ClassTable | None, rows: Tensor, score: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the answerable class with the highest score for each row; -1 while there is none."""
    if table is None or not bool(table.answerable.any()):
        return torch.full((len(rows),), -1, dtype=torch.int64, device=rows.device)
    return score(table.values).masked_fill(~table.answerable, -float("inf")).argmax(dim=1)
