"""FedKTL: clients classify against one fixed simplex, and regress what an image generator knows.

1. A client receives one image x_G of every class ever uploaded and the latent q_G that it was made from; once, the
   linear map g. The simplex F in R^C is a function of the seed.
2. It minimises the cross-entropy of 64 cos(e, F_c) with an angular margin of 0.5 rad, e the outputs of its head, plus
   50 MSE(g(f(x_G)), q_G) on one random batch of pairs per step; gradients are clipped to norm 100.
3. It sends the class means of normalised e, normalised again.
4. The server trains a network Phi and centroids R_c in the latent space of the generator, and makes one image from each
   R_c, see `fedsaf.methods.generator_prior`.

Clients answer by the largest cosine to F.
Travels: up |C_i| C numbers, down C (w + image); once g, w (d + 1).
Faithful with generator kind ``file`` and a pretrained generator; the decoders are "FedKTL-style", so the method's name
carries the kind.
Source: public code, which also forgets what a client made of g (``keep_map``). Deviation: it also sends the pairs of
classes nobody has uploaded, from untrained random centroids.
Dimension letters: K classes of a message, w latent width, d feature dimension, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsaf.core.checks import positive
from fedsaf.core.contracts import Aggregator, AuxiliaryModel, Batches, Client, ClientChannel
from fedsaf.core.types import Message, ServerContext, StepView
from fedsaf.evaluation.predictors import CosinePrototype
from fedsaf.federation.method import Channel, Method
from fedsaf.losses.arcface import arcface
from fedsaf.losses.numerics import inactive
from fedsaf.losses.objective import objective
from fedsaf.methods.alignfed import Hypersphere
from fedsaf.methods.auxiliary_model import GradientClipping
from fedsaf.methods.averaging import FixedParameters, InitialParameterChannel
from fedsaf.methods.prototype import UNCOUNTED, PrototypeChannel, evaluated_means
from fedsaf.models.context import ModelContext

FRAME, PAIRS, MAP = "frame", "prototypes", "map"
"""Channels of F and of the pairs; the map g, a channel and an auxiliary model."""


class EtfClassifier(Hypersphere):
    """The fixed classifier F: C directions in R^C with all cosines -1/(C - 1), the same for all clients.

    Row c is column c of ``F = sqrt(C / (C - 1)) O (I - 1 1^T / C)`` with O orthogonal. Two classes give opposite
    vectors.
    """

    def __init__(self) -> None:
        super().__init__(builder="etf", radius=1.0)

    def prepare(self, context: ServerContext) -> None:
        """Build the table in R^C from the seed; ValueError for a single class."""
        super().prepare(replace(context, feature_dim=context.num_classes))


@dataclass(frozen=True)
class GeneratedPairs:
    """What the server's generator made: one image per class, and the latent it was made from.

    Attributes:
        images: (K, channels, s, s), normalised as the client's own.
        latents: (K, w).
    """

    images: Tensor
    latents: Tensor


class EmbeddingChannel(ClientChannel):
    """Class means of the normalised outputs e of the client's head up, normalised again; `GeneratedPairs` down."""

    def receive(self, client: Client, message: Message | None) -> None:
        """Unpack the pairs; None clears them.

        Raises:
            ValueError: the constructor of this channel makes no pairs.
        """
        client.received.pop(PAIRS, None)
        if message is None:
            return
        if "images" not in message:
            raise ValueError(
                f"channel {PAIRS!r} brings no images; fedktl needs prototype=generator_prior with "
                "prototype.output=pairs"
            )
        images, latents = message["images"].to(client.device), message["latents"].to(client.device)
        client.received[PAIRS] = GeneratedPairs(images, latents)

    def send(self, client: Client, batches: Batches) -> Message:
        """Return ``labels`` (K,), ``values`` (K, C) of unit length and ``counts`` (K,), after training."""

        def unit(z: Tensor, embeddings: Tensor) -> Tensor:
            return F.normalize(embeddings.float(), dim=1, eps=1e-8)

        message = evaluated_means(client, batches, client.num_classes, unit).compute().to_message()
        return message | {"values": F.normalize(message["values"], dim=1, eps=1e-8)}


class AngularMargin:
    """The classification loss: outputs e of the head against F, see `fedsaf.losses.arcface.arcface`.

    Args:
        scale: > 0.
        margin: radians.
    """

    def __init__(self, scale: float, margin: float) -> None:
        positive(scale=scale)
        self.scale, self.margin = scale, margin

    def __call__(self, view: StepView) -> Tensor:
        """Return a scalar >= 0 in float32 whatever the precision of the outputs."""
        with torch.autocast(view.z.device.type, enabled=False):
            return arcface(view.logits.float(), view.y, view.received[FRAME].values, self.scale, self.margin)


@dataclass(frozen=True)
class LatentMap(AuxiliaryModel):
    """Builder of g: R^d -> R^w, w (d + 1) parameters; all clients start from the same draw.

    Attributes:
        latent_dim: w.
    """

    latent_dim: int
    shared = True

    def build(self, context: ModelContext, client: int) -> nn.Module:
        """Return the map with weights from the ambient generator."""
        return nn.Linear(context.group.feature_dim, self.latent_dim)


class LatentRegression:
    """``MSE(g(f_i(x_G)), q_G)`` on one random batch of generated pairs per step.

    Args:
        batch_size: pairs per step, drawn without replacement; all of them if they are fewer.
    """

    def __init__(self, batch_size: int) -> None:
        if batch_size < 2:
            raise ValueError(f"batch_size must be at least 2, got {batch_size}")
        self.batch_size = batch_size

    def __call__(self, view: StepView) -> Tensor:
        """Return a scalar >= 0.

        A constant 0 without graph before there are two pairs: batch normalisation cannot train on one image.
        """
        pairs = view.received.get(PAIRS)
        if pairs is None or len(pairs.images) < 2:
            return inactive(view.z)
        drawn = torch.randperm(len(pairs.images))[: self.batch_size].to(pairs.images.device)
        features, _ = view.model(pairs.images[drawn])
        return F.mse_loss(view.auxiliary[MAP](features).float(), pairs.latents[drawn])


def fedktl(
    name: str,
    constructor: Aggregator,
    scale: float,
    margin: float,
    regression_weight: float,
    batch_size: int,
    latent_dim: int,
    keep_map: bool,
    max_norm: float,
) -> Method:
    """Wire the method; the ordinary cross-entropy has no part in it, since the head's outputs are no logits.

    Args:
        name: as it appears in records.
        constructor: makes pairs, such as `fedsaf.methods.generator_prior.GeneratorPrior`.
        scale: s, see `AngularMargin`.
        margin: see `AngularMargin`.
        regression_weight: mu, of `LatentRegression`.
        batch_size: see `LatentRegression`.
        latent_dim: w, the constructor's.
        keep_map: whether a client keeps what it makes of g; otherwise that is lost after each round.
        max_norm: of the gradients of the model, and of the map.
    """
    scope = f"auxiliary:{MAP}"
    return Method(
        name=name,
        objective=objective(
            cross_entropy=0.0,
            angular_margin=(AngularMargin(scale, margin), 1.0),
            latent_regression=(LatentRegression(batch_size), regression_weight),
        ),
        auxiliary={MAP: LatentMap(latent_dim)},
        callbacks=[GradientClipping(max_norm)],
        channels={
            FRAME: Channel(PrototypeChannel(FRAME, "clean"), EtfClassifier(), ["labels", "values"]),
            MAP: Channel(InitialParameterChannel(scope, keep_map), FixedParameters(scope)),
            PAIRS: Channel(EmbeddingChannel(), constructor, UNCOUNTED),
        },
        predictors={"classifier": CosinePrototype(FRAME, "logits")},
    )
