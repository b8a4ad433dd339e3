"""Auxiliary models that a method trains beside a client's own: what they are, and how their first weights are drawn."""

from __future__ import annotations

from dataclasses import dataclass

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
