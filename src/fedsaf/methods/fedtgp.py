"""FedTGP (Zhang et al., AAAI 2024): the server trains well-separated prototypes on the uploaded class means.

A round of a client, and of the server:

1. It receives P_g^c = F(A_c) of every class, from round 1 on.
2. It minimises CE + 0.1 mean_c |P_c - P_g^c| over the classes c of a batch (alignment ``fedtgp``; public code has 10
   times the mean squared error of every feature, D11 and D25).
3. It sends its class means (of the model before training in public code, D2).
4. The server trains the embeddings A and the network F for S epochs with `margin_contrastive`: each uploaded mean must
   be nearer to its class's prototype than to any other by an adaptive margin, the largest distance between two class
   centroids of the round, capped by tau (in public code the largest nearest distance, D10).

Clients answer by the nearest prototype, among classes ever uploaded (in public code among all).
Travels: up |C_i| d numbers, down C d. The client side is `fedsaf.methods.prototype`; here is the constructor.
Dimension letters: A uploaded pairs (prototype, class) of a round, d feature dimension, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedsaf.core.checks import one_of, positive
from fedsaf.core.contracts import Aggregator
from fedsaf.core.seeding import seeded, torch_generator
from fedsaf.core.types import Message, ServerContext, Upload
from fedsaf.losses.contrastive import margin_contrastive
from fedsaf.prototypes.class_means import class_means
from fedsaf.prototypes.class_table import ClassTable, Pairs, uploaded_pairs
from fedsaf.prototypes.margins import max_of_min, max_pair

MARGINS: dict[str, Callable[[Tensor], float]] = {"max_pair": max_pair, "max_of_min": max_of_min}
"""Rules for the margin as a function of the (K, d) class centroids of a round."""


@dataclass(frozen=True)
class PairTraining:
    """How a server fits prototypes to the uploaded pairs of a round: plain SGD on `margin_contrastive`, always anew.

    Attributes:
        epochs: S, passes over the pairs.
        batch_size: pairs per step; the last step takes the rest.
        lr: learning rate.
    """

    epochs: int
    batch_size: int
    lr: float

    def __post_init__(self) -> None:
        positive(epochs=self.epochs, batch_size=self.batch_size, lr=self.lr)

    @torch.enable_grad()
    def run(
        self,
        prototypes: Callable[[], Tensor],
        parameters: Iterable[nn.Parameter],
        pairs: Pairs,
        margin: float,
        order: torch.Generator,
    ) -> tuple[float, float]:
        """Train.

        Args:
            prototypes: () -> (C, d), a differentiable function of the parameters.
            parameters: what is trained.
            pairs: at least one.
            margin: >= 0.
            order: draws the order of the pairs.

        Returns:
            Mean loss per pair over the first epoch and over the last.

        Raises:
            FloatingPointError: the training diverges.
        """
        optimizer = torch.optim.SGD(parameters, lr=self.lr)
        labels, means, _ = pairs
        losses = []
        for _ in range(self.epochs):
            total = 0.0
            for batch in torch.randperm(len(labels), generator=order).split(self.batch_size):
                loss = margin_contrastive(means[batch], labels[batch], prototypes(), margin)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item() * len(batch)
            losses.append(total / len(labels))
        if not math.isfinite(losses[-1]):
            raise FloatingPointError(f"the training of prototypes diverged: loss {losses[-1]}")
        return losses[0], losses[-1]


class Trainable(Aggregator):
    """Prototypes F(A_c) of learnable embeddings A and a small network F, trained each round on the uploads.

    Every class gets a vector with the first update, also one that nobody uploaded: it acts as a negative. ``seen`` says
    which classes were ever uploaded and so may be predicted.

    Args:
        epochs: S, passes over the uploaded pairs per round.
        batch_size: pairs per step; the last step takes the rest.
        lr: learning rate of plain SGD, a fresh one every round.
        margin: ``max_pair`` (paper) or ``max_of_min`` (public code), of the centroids of a round and capped by
            ``max_margin``; ``fixed`` (ablation FM): ``fixed_margin``; ``none`` (ablation SCL): 0.
        max_margin: tau.
        fixed_margin: margin of ``fixed``.
        network: False drops F, P_g^c = A_c (ablation w/o F).
        send_initial: broadcast the untrained prototypes in round 0, as Algorithm 1 of the paper does.
        predict_unseen: let the nearest prototype be that of a class nobody has uploaded, as public code does;
            otherwise the broadcast says which classes were (part ``seen``).

    Raises:
        ValueError: unknown margin, or a number out of range.
    """

    def __init__(
        self,
        epochs: int,
        batch_size: int,
        lr: float,
        margin: str,
        max_margin: float,
        fixed_margin: float,
        network: bool,
        send_initial: bool,
        predict_unseen: bool,
    ) -> None:
        positive(max_margin=max_margin)
        self.training = PairTraining(epochs, batch_size, lr)
        self.margin = one_of("margin", margin, (*MARGINS, "fixed", "none"))
        self.max_margin, self.fixed_margin = max_margin, fixed_margin
        self.network, self.send_initial, self.predict_unseen = network, send_initial, predict_unseen

    def prepare(self, context: ServerContext) -> None:
        """Draw embeddings (standard normal) and network from the seed."""
        self._seed, d = context.seed, context.feature_dim
        with seeded(context.seed, "prototypes/trainable/init"):
            self._embeddings = nn.Parameter(torch.randn(context.num_classes, d))
            layers = [nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d)] if self.network else []
            self._network = nn.Sequential(*layers)
        self._mask = torch.full((context.num_classes,), self.send_initial)
        self._seen = torch.zeros(context.num_classes, dtype=torch.bool)

    def update(self, uploads: Sequence[Upload], round: int) -> dict[str, float]:
        """Train on the pairs of one round; without any pair nothing happens.

        Returns:
            ``num_prototypes``; with pairs also ``margin``, and ``loss_before`` and ``loss``, the mean loss per pair
            over the first and over the last epoch of this round. From round to round the loss moves with the margin.

        Raises:
            ValueError: malformed message.
            FloatingPointError: NaN or Inf in the values, or a training that diverges.
        """
        pairs = uploaded_pairs(uploads, *self._embeddings.shape)
        metrics = {}
        if len(pairs.labels):
            margin = self._margin_of(pairs)
            before, after = self.training.run(
                lambda: self._network(self._embeddings),
                [self._embeddings, *self._network.parameters()],
                pairs,
                margin,
                torch_generator(self._seed, "prototypes/trainable/shuffle", round),
            )
            metrics = {"margin": margin, "loss_before": before, "loss": after}
            self._seen[pairs.labels] = True
            self._mask.fill_(True)
        return {"num_prototypes": float(self._mask.sum()), **metrics}

    def _margin_of(self, pairs: Pairs) -> float:
        if self.margin in MARGINS:
            centroids = class_means(pairs.values.double(), pairs.labels, len(self._mask)).rows
            return min(MARGINS[self.margin](centroids), self.max_margin)
        return self.fixed_margin if self.margin == "fixed" else 0.0

    @torch.no_grad()
    def broadcast(self) -> Message | None:
        """Return all classes, with ``seen`` unless ``predict_unseen``; None before the first update."""
        table = self._network(self._embeddings).detach()
        return ClassTable(table, self._mask, seen=None if self.predict_unseen else self._seen).to_broadcast()

    def state(self) -> dict[str, Tensor]:
        """Return the live state."""
        network = {f"network.{name}": value for name, value in self._network.named_parameters()}
        return {"embeddings": self._embeddings, **network, "mask": self._mask, "seen": self._seen}
