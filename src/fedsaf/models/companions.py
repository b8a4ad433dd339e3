"""Auxiliary models that a method trains beside a client's own: what they are, and how their first weights are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import nn

from fedsaf.core.types import InputFacts
from fedsaf.models.groups import ModelGroup


@dataclass(frozen=True)
class ModelContext:
    """What a builder of models is told.

    Attributes:
        group: architectures of the clients.
        num_classes: C.
        inputs: what the clients' inputs are like.
    """

    group: ModelGroup
    num_classes: int
    inputs: InputFacts


class Companion(Protocol):
    """Builder of an auxiliary model.

    Attributes:
        shared: whether all clients start from the same draw, as models that are averaged must; else each has its own.
        lr: learning rate of its parameters; None for the client's.
    """

    shared: bool
    lr: float | None

    def build(self, context: ModelContext, client: int) -> nn.Module:
        """Return the model with weights from the ambient generator, which the caller seeds."""
        ...
