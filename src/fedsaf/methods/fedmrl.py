"""FedMRL (Yi et al., 2024): a shared small model and the private one make one nested representation.

A round: the client receives the small model, with trunk g and a head that reads s features. With its private model f, h
and private projector R it forms u = R([g(x); f(x)]) and minimises CE(h(u)) + CE(small head on the first s of u).
It sends the small model; the server averages. The answer is h(u), with the server's current g also at test time, so
that every client downloads it before evaluation.

Travels: the small model (the group's first architecture at s features, linear head), both ways.
Register entries: D5, D18. Dimension letters: B batch, d feature dimension, s that of the small model, C classes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsaf.core.contracts import AuxiliaryModel, Batches, Callback, Client, Outputs
from fedsaf.core.types import StepView
from fedsaf.federation.method import Method
from fedsaf.federation.scopes import AUXILIARY, read_scope, write_scope
from fedsaf.losses.objective import objective
from fedsaf.methods.auxiliary_model import SmallModel
from fedsaf.methods.averaging import averaged
from fedsaf.models.context import ModelContext

SMALL, PROJECTOR = "small", "projector"


class Projector(AuxiliaryModel):
    """Builder of the private projector R: (d + s) -> d, a linear layer with bias.

    Args:
        small_dim: s, at most the clients' d as everywhere, since the small head reads the first s of d entries.

    Raises:
        ValueError: a dimension below one.
    """

    def __init__(self, small_dim: int) -> None:
        if small_dim < 1:
            raise ValueError(f"small_dim is {small_dim}; expected at least 1")
        self.small_dim = small_dim

    def build(self, context: ModelContext, client: int) -> nn.Module:
        """Return the layer: d (d + s + 1) parameters."""
        d = context.group.feature_dim
        return nn.Linear(d + min(self.small_dim, d), d)


class NestedRepresentation:
    """Forward rule: u = R([g(x); f(x)]) and h(u)."""

    def __call__(self, client: Client, x: Tensor) -> Outputs:
        """Return the nested representation u (B, d) and the logits (B, C) of the client's own head on it."""
        features = [client.auxiliary[SMALL].features(x), client.model.features(x)]
        u = client.auxiliary[PROJECTOR](torch.cat(features, dim=1))
        return Outputs(u, client.model.head(u))


class NestedCrossEntropy:
    """Cross-entropy of the small model's head on the first s entries of u."""

    def __call__(self, view: StepView) -> Tensor:
        """Return a scalar >= 0."""
        small = view.auxiliary[SMALL]
        return F.cross_entropy(small.head(view.z[:, : small.feature_dim]).float(), view.y)


class DiscardProjector(Callback):
    """Puts R back to what it was before the round, so that it keeps its initial weights for ever (public code, D18)."""

    SCOPE = f"{AUXILIARY}{PROJECTOR}"

    def on_train_start(self, client: Client, batches: Batches) -> None:
        """Note R."""
        client.scratch[self.SCOPE] = read_scope(client, self.SCOPE)

    def on_train_end(self, client: Client, batches: Batches) -> None:
        """Put it back."""
        write_scope(client, self.SCOPE, client.scratch.pop(self.SCOPE))


def fedmrl(
    name: str,
    small_dim: int,
    nested_weight: float,
    reset_projector: bool,
    architecture: str | None,
    small_lr: float | None,
    weighting: str,
    buffers: str,
) -> Method:
    """Return the method.

    Args:
        name: as it appears in records.
        small_dim: s; the clients' d where that is smaller.
        nested_weight: of the small head's cross-entropy.
        reset_projector: whether the trained projector is thrown away after every round (D18).
        architecture: of the small model; None for the group's first, CNN-4 in HtC groups.
        small_lr: learning rate of the small model; None for the clients'.
        weighting: ``samples`` or ``uniform``, of the mean.
        buffers: ``average`` or ``ignore`` batch-normalisation statistics (D5).
    """
    return Method(
        name,
        objective(nested_cross_entropy=(NestedCrossEntropy(), nested_weight)),
        auxiliary={SMALL: SmallModel(architecture, small_dim, small_lr), PROJECTOR: Projector(small_dim)},
        forward_rule=NestedRepresentation(),
        callbacks=[DiscardProjector()] if reset_projector else [],
        channels={SMALL: averaged(f"{AUXILIARY}{SMALL}", weighting, buffers)},
    )
