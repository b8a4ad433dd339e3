"""Models that are looked at and never trained: the received global model, a client's model of an earlier round."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from fedsaf.core.contracts import AuxiliaryModel
from fedsaf.models.context import ModelContext


class Frozen(nn.Module):
    """A model without gradient that stays in evaluation mode, whatever mode its owner is put into.

    Args:
        model: taken over, not copied.

    Attributes:
        taken: () bool, whether the weights were ever taken over from a trained model by `take`.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model.requires_grad_(False)
        self.taken: Tensor
        self.register_buffer("taken", torch.tensor(False))
        self.eval()

    @classmethod
    def copy_of(cls, model: nn.Module) -> Frozen:
        """Return a frozen copy; ``model`` stays as it is."""
        return cls(copy.deepcopy(model))

    def train(self, mode: bool = True) -> Frozen:
        """Stay in evaluation mode."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map inputs to z (B, d) and logits (B, C), without graph."""
        return self.model(x)

    @torch.no_grad()
    def take(self, model: nn.Module) -> None:
        """Take over the parameters and buffers of ``model`` by value."""
        self.model.load_state_dict(model.state_dict())
        self.taken.fill_(True)


class FrozenTwin(AuxiliaryModel):
    """AuxiliaryModel: a frozen network of the client's own architecture, independently initialised.

    Attributes:
        shared: False, every client has its own draw.
        lr: None, nothing of it learns.
    """

    shared = False
    lr = None

    def build(self, context: ModelContext, client: int) -> nn.Module:
        """Return the twin with weights from the ambient generator."""
        model = context.group.build(client, context.num_classes, context.inputs)
        return Frozen(model)
