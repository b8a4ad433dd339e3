"""Semantic anchors: class targets that do not start from the clients, as in FedSA.

Dimension letters: A uploaded pairs (prototype, class) of a round, d feature dimension, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedsaf.core.contracts import Aggregator
from fedsaf.core.seeding import seeded, torch_generator
from fedsaf.core.types import Message, ServerContext, Upload
from fedsaf.prototypes.class_means import class_means
from fedsaf.prototypes.class_table import ClassTable, uploaded_pairs
from fedsaf.prototypes.margins import mean_of_min
from fedsaf.prototypes.trainable import PairTraining

VARIANTS = ("ema", "train")


def projection(feature_dim: int) -> nn.Sequential:
    """Return the projection of FedSA: twice linear, batch normalisation over the C rows, ReLU.

    Batch normalisation always uses the statistics of the C rows at hand, so each output column is standardised over
    classes, then rectified; there are no running statistics.
    """

    def block() -> list[nn.Module]:
        return [
            nn.Linear(feature_dim, feature_dim),
            nn.BatchNorm1d(feature_dim, track_running_stats=False),
            nn.ReLU(),
        ]

    return nn.Sequential(*block(), *block())


class SemanticAnchors(Aggregator):
    """Anchors A = Proj(G) of a standard normal (C, d) table G; every class has one from round 0.

    ``ema`` (public code of FedSA, register entry D21): A is computed once and then moves by
    ``A^c <- b A^c + (1 - b) Pbar^c`` for the classes uploaded in a round, Pbar^c the plain mean of their uploads.
    ``train`` (how FedSAF describes FedSA): G and Proj are trained on the uploads as FedTGP's prototypes are, with the
    mean over classes of the distance to the nearest other centroid as margin.

    Attributes:
        needs_counts: False.
        needs_uploads: True.
    """

    def __init__(self, variant: str, decay: float, epochs: int, batch_size: int, lr: float) -> None:
        """Choose the variant.

        Args:
            variant: ``ema`` or ``train``.
            decay: b in [0, 1], of ``ema``.
            epochs: S, passes over the uploaded pairs per round, of ``train``.
            batch_size: pairs per step, of ``train``.
            lr: learning rate of plain SGD, of ``train``.

        Raises:
            ValueError: unknown variant, or a number out of range.
        """
        if variant not in VARIANTS:
            raise ValueError(f"variant must be one of {VARIANTS}, got {variant!r}")
        if not 0 <= decay <= 1:
            raise ValueError(f"decay must lie in [0, 1], got {decay}")
        self.variant, self.decay = variant, decay
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
        """Move the anchors by the uploads of one round.

        Args:
            uploads: messages with ``labels`` (K,) and ``values`` (K, d); K may be 0. Without any pair nothing happens.
            round: keys the order of pairs of ``train``.

        Returns:
            ``num_prototypes``; ``margin``, the mean distance of an anchor to the nearest other; for ``train`` ``loss``.

        Raises:
            ValueError: malformed message.
            FloatingPointError: NaN or Inf in the values, or a training that diverges.
        """
        labels, means, _ = uploaded_pairs(uploads, *self._anchors.shape)
        metrics = {}
        if len(labels):
            centroids = class_means(means.double(), labels, len(self._seen))
            if self.variant == "ema":
                moved = self.decay * self._anchors[centroids.labels].double() + (1 - self.decay) * centroids.rows
                self._anchors[centroids.labels] = moved.float()
            else:
                metrics["loss"] = self._train(means, labels, mean_of_min(centroids.rows), round)
            self._seen[labels] = True
        return {"num_prototypes": float(len(self._anchors)), "margin": mean_of_min(self._anchors), **metrics}

    def _train(self, means: Tensor, labels: Tensor, margin: float, round: int) -> float:
        _, loss = self.training.run(
            self._project,
            [self._inputs, *self._projection.parameters()],
            means,
            labels,
            margin,
            torch_generator(self._seed, "prototypes/semantic_anchor/shuffle", round),
        )
        self._anchors = self._project().detach()
        return loss

    def broadcast(self) -> Message | None:
        """Return ``labels``, ``values`` and ``seen`` of all classes; before the first update too."""
        return ClassTable.full(self._anchors, self._seen).to_message()

    def state(self) -> dict[str, Tensor]:
        """Return the live state."""
        state = {"anchors": self._anchors, "seen": self._seen}
        if self.variant == "train":
            state["inputs"] = self._inputs
            state |= {f"projection.{name}": value for name, value in self._projection.named_parameters()}
        return state
