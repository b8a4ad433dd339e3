"""FedSA: anchors that do not start from the clients pull features, part them by a margin and calibrate the classifier.

A round of a client, and of the server:

1. It receives an anchor A^c of every class, from round 0 on, and the plain mean of all clients' prototypes.
2. It minimises CE + 10 MSE(z, A^y) (alignment ``fedsa``) + CE(-(|z - A^c| + g [c = y]), y) + CE(h(A^c), c) over all
   classes. The margin g = max(g_local, g_global) is a mean nearest distance: of its own class means of its previous
   participation, which it remembers, and of the anchors.
3. It sends its class means.
4. The server moves the anchors slowly towards the mean of each class (``ema``), or trains them (``train``, D21).

Clients answer by the nearest of the plainly averaged client prototypes.
Travels: up |C_i| d numbers, down 2 C d; without the averaged prototypes (``send_client_means``) C d.
Source: public code. Dimension letters: d feature dimension, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsaf.core.checks import one_of
from fedsaf.core.contracts import Aggregator, Batches, Callback, Client
from fedsaf.core.seeding import seeded, torch_generator
from fedsaf.core.types import Message, ServerContext, StepView, Upload
from fedsaf.evaluation.predictors import NearestPrototype
from fedsaf.federation.method import Channel, Method
from fedsaf.losses.contrastive import margin_contrastive
from fedsaf.losses.objective import Weighted
from fedsaf.methods.fedtgp import PairTraining
from fedsaf.methods.prototype import UNCOUNTED, PrototypeChannel, prototype
from fedsaf.prototypes.class_means import class_means
from fedsaf.prototypes.class_table import ClassTable, Pairs, uploaded_pairs
from fedsaf.prototypes.margins import mean_of_min
from fedsaf.prototypes.mean import Mean

ANCHORS, SENT, OWN, MARGIN = "prototypes", "prototypes.sent", "prototypes.means", "anchor_margin"
"""Channel of the anchors; in ``scratch`` the message a client sends over it; in ``memory`` its means; the margin g."""


class AnchorChannel(PrototypeChannel):
    """Anchors down; class means up, which the client remembers.

    Fewer than two means have no distance between them and leave no memory.
    """

    def send(self, client: Client, batches: Batches) -> Message:
        """Return the class means; note the message for this round, its values until the next one."""
        message = super().send(client, batches)
        client.scratch[SENT] = message
        client.memory.pop(OWN, None)
        if len(message["values"]) > 1:
            client.memory[OWN] = message["values"].clone()
        return message


class ClientMeansChannel(PrototypeChannel):
    """Averaged client prototypes down; up goes what has just gone up over `AnchorChannel`, at no cost."""

    def send(self, client: Client, batches: Batches) -> Message:
        """Return that message."""
        return dict(client.scratch[SENT])


class AnchorMargin(Callback):
    """The margin ``g = max(g_local, g_global)``, once per round into ``scratch``.

    Each is the mean over classes of the distance to the nearest other class; g_local has no say before the first
    participation or for fewer than two means (g_global is never negative).
    """

    def on_train_start(self, client: Client, batches: Batches) -> None:
        """Note the margin of this round.

        Raises:
            ValueError: a class has no anchor.
        """
        table = client.received.get(ANCHORS)
        if table is None or not bool(table.mask.all()):
            raise ValueError(
                f"channel {ANCHORS!r} brings no vector for some class; fedsa needs a constructor that has one for each "
                "from the start, such as prototype=semantic_anchor"
            )
        own = client.memory.get(OWN)
        client.scratch[MARGIN] = max(mean_of_min(table.values), 0.0 if own is None else mean_of_min(own))


class MarginContrast:
    """Features nearer to their own anchor than to any other by the margin."""

    def __call__(self, view: StepView) -> Tensor:
        """Return ``CE(-(|z_j - A^c| + g [c = y_j]), y_j)``, a scalar > 0 in float32 whatever the precision of z."""
        with torch.autocast(view.z.device.type, enabled=False):
            return margin_contrastive(view.z.float(), view.y, view.received[ANCHORS].values, view.scratch[MARGIN])


class AnchorCalibration:
    """The client's own head must classify the anchors."""

    def __call__(self, view: StepView) -> Tensor:
        """Return ``CE(h_i(A^c), c)``, mean over all C classes; the gradient reaches the head alone."""
        anchors = view.received[ANCHORS].values
        return F.cross_entropy(view.model.head(anchors).float(), torch.arange(len(anchors), device=anchors.device))


class SemanticAnchors(Aggregator):
    """Anchors A = Proj(G) of a standard normal (C, d) table G; every class has one from round 0.

    Args:
        variant: ``ema`` (public code, register entry D21): A is computed once and then moves by ``A^c <- b A^c + (1 -
            b) Pbar^c`` for the classes uploaded in a round, Pbar^c the plain mean of their uploads. ``train`` (how
            FedSAF describes FedSA): G and Proj are trained on the uploads as FedTGP's prototypes are, with the mean
            nearest distance of the centroids as margin.
        decay: b in [0, 1], of ``ema``.
        epochs: S, passes over the uploaded pairs per round, of ``train``.
        batch_size: pairs per step, of ``train``.
        lr: learning rate of plain SGD, of ``train``.

    Raises:
        ValueError: unknown variant, or a number out of range.
    """

    def __init__(self, variant: str, decay: float, epochs: int, batch_size: int, lr: float) -> None:
        if not 0 <= decay <= 1:
            raise ValueError(f"decay must lie in [0, 1], got {decay}")
        self.variant, self.decay = one_of("variant", variant, ("ema", "train")), decay
        self.training = PairTraining(epochs, batch_size, lr)

    def prepare(self, context: ServerContext) -> None:
        """Draw G and the projection from the seed.

        Raises:
            ValueError: a single class, over which nothing can be standardised.
        """
        if context.num_classes < 2:
            raise ValueError(f"semantic anchors need num_classes >= 2, got {context.num_classes}")
        self._seed = context.seed
        with seeded(context.seed, "prototypes/semantic_anchor/init"):
            self._inputs = nn.Parameter(torch.randn(context.num_classes, context.feature_dim))
            self._projection = projection(context.feature_dim)
        self._anchors = self._project().detach()
        self._seen = torch.zeros(context.num_classes, dtype=torch.bool)

    def _project(self) -> Tensor:
        return self._projection(self._inputs)

    def update(self, uploads: Sequence[Upload], round: int) -> dict[str, float]:
        """Move the anchors by the uploads of one round; without any pair nothing happens.

        Returns:
            ``num_prototypes``; ``margin``, the mean distance of an anchor to the nearest other; for ``train`` ``loss``.

        Raises:
            ValueError: malformed message.
            FloatingPointError: NaN or Inf in the values, or a training that diverges.
        """
        pairs = uploaded_pairs(uploads, *self._anchors.shape)
        metrics = {}
        if len(pairs.labels):
            centroids = class_means(pairs.values.double(), pairs.labels, len(self._seen))
            if self.variant == "ema":
                moved = self.decay * self._anchors[centroids.labels].double() + (1 - self.decay) * centroids.rows
                self._anchors[centroids.labels] = moved.float()
            else:
                metrics["loss"] = self._train(pairs, mean_of_min(centroids.rows), round)
            self._seen[pairs.labels] = True
        return {"num_prototypes": float(len(self._anchors)), "margin": mean_of_min(self._anchors), **metrics}

    def _train(self, pairs: Pairs, margin: float, round: int) -> float:
        parameters = [self._inputs, *self._projection.parameters()]
        order = torch_generator(self._seed, "prototypes/semantic_anchor/shuffle", round)
        _, loss = self.training.run(self._project, parameters, pairs, margin, order)
        self._anchors = self._project().detach()
        return loss

    def broadcast(self) -> Message | None:
        """Return all classes, with ``seen``; before the first update too."""
        return ClassTable.full(self._anchors, self._seen).to_message()

    def state(self) -> dict[str, Tensor]:
        """Return the live state."""
        state = {"anchors": self._anchors, "seen": self._seen}
        if self.variant == "train":
            state["inputs"] = self._inputs
            state |= {f"projection.{name}": value for name, value in self._projection.named_parameters()}
        return state


def projection(d: int) -> nn.Sequential:
    """Return the projection of FedSA: twice linear, batch normalisation over the C rows, ReLU.

    Batch normalisation always uses the statistics of the C rows at hand, so each output column is standardised over
    classes, then rectified; there are no running statistics.
    """
    blocks = [(nn.Linear(d, d), nn.BatchNorm1d(d, track_running_stats=False), nn.ReLU()) for _ in range(2)]
    return nn.Sequential(*blocks[0], *blocks[1])


def fedsa(
    margin_weight: float,
    calibration_weight: float,
    absent: str,
    send_client_means: bool,
    predictor: str,
    extra_terms: Mapping[str, Weighted],
    **rest: Any,
) -> Method:
    """Wire the method.

    Args:
        margin_weight: w_mcl, of `MarginContrast`.
        calibration_weight: w_cc, of `AnchorCalibration`.
        absent: see `Mean`, of the averaged client prototypes.
        send_client_means: False leaves them out, and the nearest prototype with them.
        predictor: the rule whose accuracy is reported, ``nearest_prototype`` or ``classifier``.
        extra_terms: further terms of the objective, by name.
        rest: of `fedsaf.methods.prototype.prototype`; its constructor must have a vector for each class from the start,
            as `SemanticAnchors` does.
    """
    own = {
        "margin_contrast": Weighted(MarginContrast(), margin_weight),
        "calibration": Weighted(AnchorCalibration(), calibration_weight),
    }
    method = prototype(predictor="classifier", extra_terms=own | dict(extra_terms), **rest)
    anchors = replace(method.channels[ANCHORS], client=AnchorChannel(ANCHORS, rest["collect"]))
    channels, predictors = {**method.channels, ANCHORS: anchors}, {"classifier": method.predictors["classifier"]}
    if send_client_means:
        half = ClientMeansChannel("client_means", "clean")
        channels["client_means"] = Channel(half, Mean("uniform", absent), UNCOUNTED, free_uploads=True)
        predictors["nearest_prototype"] = NearestPrototype("client_means")
    return replace(method, callbacks=[AnchorMargin()], channels=channels, predictors=predictors, predictor=predictor)
