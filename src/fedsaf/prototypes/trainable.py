"""Trainable global prototypes with an adaptive margin: the server side of FedTGP.

Dimension letters: A uploaded pairs (prototype, class) of a round, d feature dimension, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedsaf.core.contracts import Aggregator
from fedsaf.core.seeding import seeded, torch_generator
from fedsaf.core.types import Message, ServerContext, Upload
from fedsaf.prototypes.class_means import class_means
from fedsaf.prototypes.class_table import ClassTable, uploaded_pairs
from fedsaf.prototypes.margins import max_of_min, max_pair

SQUARE_FLOOR = 1e-12
"""Squared distances below this are 0, and constant: the slope of the root is infinite there."""

MARGINS: dict[str, Callable[[Tensor], float]] = {"max_pair": max_pair, "max_of_min": max_of_min}
"""Rules for the margin as a function of the (K, d) class centroids of a round."""


def margin_contrastive(P: Tensor, labels: Tensor, prototypes: Tensor, margin: float) -> Tensor:
    """Margin-enhanced contrastive loss of FedTGP, mean over the rows.

    Cross-entropy of the logits ``-(|P_a - P_g^c| + margin [c = y_a])``: the distance to the own prototype must be
    smaller than every other by the margin.

    Args:
        P: (A, d) uploaded prototypes.
        labels: (A,) their classes.
        prototypes: (C, d) trainable prototypes.
        margin: >= 0.

    Returns:
        Scalar > 0. A distance below 1e-6 counts as 0 and has gradient 0.

    >>> margin_contrastive(torch.tensor([[0.0]]), torch.tensor([0]), torch.tensor([[0.0], [0.0]]), 0.0)
    tensor(0.6931)
    """
    squares = P.square().sum(dim=1, keepdim=True) + prototypes.square().sum(dim=1) - 2 * P @ prototypes.T
    distances = squares.clamp_min(SQUARE_FLOOR).sqrt() * (squares > SQUARE_FLOOR)
    return F.cross_entropy(-(distances + margin * F.one_hot(labels, len(prototypes))), labels)


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
        for name in ("epochs", "batch_size", "lr"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")

    @torch.enable_grad()
    def run(
        self,
        prototypes: Callable[[], Tensor],
        parameters: Iterable[nn.Parameter],
        means: Tensor,
        labels: Tensor,
        margin: float,
        order: torch.Generator,
    ) -> tuple[float, float]:
        """Train.

        Args:
            prototypes: () -> (C, d), a differentiable function of the parameters.
            parameters: what is trained.
            means: (A, d) uploaded prototypes, A >= 1.
            labels: (A,) their classes.
            margin: >= 0.
            order: draws the order of the pairs.

        Returns:
            Mean loss per pair over the first epoch and over the last.

        Raises:
            FloatingPointError: the training diverges.
        """
        optimizer = torch.optim.SGD(parameters, lr=self.lr)
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

    Attributes:
        needs_counts: False.
        needs_uploads: True.
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
        """Choose the training.

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
        if margin not in (*MARGINS, "fixed", "none"):
            raise ValueError(f"margin must be one of {[*MARGINS, 'fixed', 'none']}, got {margin!r}")
        if not max_margin > 0:
            raise ValueError(f"max_margin must be positive, got {max_margin}")
        self.training = PairTraining(epochs, batch_size, lr)
        self.margin, self.max_margin, self.fixed_margin = margin, max_margin, fixed_margin
        self.network, self.send_initial, self.predict_unseen = network, send_initial, predict_unseen

    def prepare(self, context: ServerContext) -> None:
        """Draw embeddings (standard normal) and network from the seed."""
        self._seed = context.seed
        with seeded(context.seed, "prototypes/trainable/init"):
            self._embeddings = nn.Parameter(torch.randn(context.num_classes, context.feature_dim))
            self._network = nn.Identity()
            if self.network:
                layers = (
                    nn.Linear(context.feature_dim, context.feature_dim),
                    nn.ReLU(),
                    nn.Linear(context.feature_dim, context.feature_dim),
                )
                self._network = nn.Sequential(*layers)
        self._mask = torch.full((context.num_classes,), self.send_initial)
        self._seen = torch.zeros(context.num_classes, dtype=torch.bool)

    @property
    def seen(self) -> Tensor:
        """Return (C,) bool, the classes ever uploaded."""
        return self._seen.clone()

    def update(self, uploads: Sequence[Upload], round: int) -> dict[str, float]:
        """Train on the pairs of one round.

        Args:
            uploads: messages with ``labels`` (K,) and ``values`` (K, d); K may be 0. Without any pair nothing happens.
            round: keys the order of pairs.

        Returns:
            ``num_prototypes``; with pairs also ``margin``, and ``loss_before`` and ``loss``, the mean loss per pair
            over the first and over the last epoch of this round. From round to round the loss moves with the margin.

        Raises:
            ValueError: malformed message.
            FloatingPointError: NaN or Inf in the values, or a training that diverges.
        """
        labels, means, _ = uploaded_pairs(uploads, *self._embeddings.shape)
        metrics = {}
        if len(labels):
            margin = self._margin_of(means, labels)
            before, after = self.training.run(
                lambda: self._network(self._embeddings),
                [self._embeddings, *self._network.parameters()],
                means,
                labels,
                margin,
                torch_generator(self._seed, "prototypes/trainable/shuffle", round),
            )
            metrics = {"margin": margin, "loss_before": before, "loss": after}
            self._seen[labels] = True
            self._mask.fill_(True)
        return {"num_prototypes": float(self._mask.sum()), **metrics}

    def _margin_of(self, means: Tensor, labels: Tensor) -> float:
        if self.margin in MARGINS:
            centroids = class_means(means.double(), labels, len(self._mask)).rows
            return min(MARGINS[self.margin](centroids), self.max_margin)
        return self.fixed_margin if self.margin == "fixed" else 0.0

    @torch.no_grad()
    def broadcast(self) -> Message | None:
        """Return ``labels``, ``values`` and, unless ``predict_unseen``, ``seen`` of all classes.

        None before the first update, unless ``send_initial``.
        """
        table = self._network(self._embeddings).detach()
        return ClassTable(table, self._mask, seen=None if self.predict_unseen else self._seen).to_broadcast()

    def state(self) -> dict[str, Tensor]:
        """Return the live state."""
        network = {f"network.{name}": value for name, value in self._network.named_parameters()}
        return {"embeddings": self._embeddings, **network, "mask": self._mask, "seen": self._seen}
