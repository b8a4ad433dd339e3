"""Prototypes in the latent space of an image generator, and one image per class from there: the server of FedKTL.

A network Phi maps the uploaded prototypes to latents; R_c is where those of class c end up. Phi is trained so that the
mapped prototypes follow the latent law of the generator.
Dimension letters: A uploaded pairs (prototype, class) of a round, p prototype width, w latent width, d feature
dimension, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from fedsaf.core.checks import one_of, positive
from fedsaf.core.contracts import Aggregator, restore
from fedsaf.core.seeding import seeded, torch_generator
from fedsaf.core.types import Message, ServerContext, Upload
from fedsaf.losses.mmd import mmd
from fedsaf.prototypes.class_means import class_means
from fedsaf.prototypes.class_table import ClassTable, uploaded_pairs
from fedsaf.prototypes.decoders import GeneratorSource, make_images
from fedsaf.prototypes.sphere import semi_orthogonal


@dataclass(frozen=True)
class LatentTraining:
    """How Phi and R are trained in a round.

    Attributes:
        epochs: passes over the uploaded pairs.
        batch_size: pairs per step, at least 2.
        lr: of Adam.
        centroid_weight: lambda, of the distance to the centroids.
        max_norm: gradients of Phi, and those of R, are clipped to this length.
    """

    epochs: int
    batch_size: int
    lr: float
    centroid_weight: float
    max_norm: float

    def __post_init__(self) -> None:
        if self.batch_size < 2:
            raise ValueError(f"batch_size must be at least 2, got {self.batch_size}")
        positive(epochs=self.epochs, lr=self.lr, max_norm=self.max_norm)
        if not self.centroid_weight >= 0:
            raise ValueError(f"centroid_weight must not be negative, got {self.centroid_weight}")


class LatentAlignment(nn.Module):
    """The network Phi: R^p -> R^w (linear p -> p, batch normalisation, ReLU, linear p -> w) and the centroids R (C, w).

    Args:
        num_classes: C.
        width: p.
        latent_dim: w.
    """

    def __init__(self, num_classes: int, width: int, latent_dim: int) -> None:
        super().__init__()
        self.transform = nn.Sequential(
            nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, latent_dim)
        )
        self.centroids = nn.Parameter(torch.randn(num_classes, latent_dim))

    @torch.no_grad()
    def recentre(self, prototypes: Tensor, labels: Tensor) -> None:
        """Set R_c to the mean of Phi over the prototypes of class c; classes without any keep theirs."""
        self.transform.eval()
        means = class_means(self.transform(prototypes).double(), labels, len(self.centroids))
        self.centroids[means.labels] = means.rows.float()

    def loss(self, prototypes: Tensor, labels: Tensor, latents: Tensor, centroid_weight: float) -> Tensor:
        """Return ``MMD(Phi(P), latents) + lambda MSE(Phi(P), R_y)`` of one batch."""
        transformed = self.transform(prototypes)
        return mmd(transformed, latents) + centroid_weight * F.mse_loss(transformed, self.centroids[labels])

    @torch.enable_grad()
    def fit(self, prototypes: Tensor, labels: Tensor, training: LatentTraining, draws: Generator) -> float | None:
        """Train Phi and R on the pairs of one round, with fresh Adam optimisers.

        Args:
            prototypes: (A, p).
            labels: (A,).
            training: how.
            draws: draws orders and latents.

        Returns:
            Mean loss over the batches of the last epoch; None if there was none, since a batch of one pair is dropped
            (batch normalisation has nothing to normalise there).

        Raises:
            FloatingPointError: the training diverges.
        """
        optimizer = torch.optim.Adam(self.parameters(), lr=training.lr)
        self.transform.train()
        losses: list[float] = []
        for _ in range(training.epochs):
            order = torch.randperm(len(labels), generator=draws)
            losses = []
            for batch in order.split(training.batch_size):
                if len(batch) == 1:
                    continue
                latents = torch.randn(len(batch), self.centroids.shape[1], generator=draws)
                loss = self.loss(prototypes[batch], labels[batch], latents, training.centroid_weight)
                optimizer.zero_grad()
                loss.backward()
                for part in (self.transform.parameters(), [self.centroids]):
                    nn.utils.clip_grad_norm_(part, training.max_norm)
                optimizer.step()
                losses.append(loss.item())
        if not losses:
            return None
        if not math.isfinite(sum(losses)):
            raise FloatingPointError(f"the training of the latent centroids diverged: losses {losses}")
        return sum(losses) / len(losses)


class GeneratorPrior(Aggregator):
    """Latent centroids R_c, moved each round to where Phi maps the uploaded prototypes of class c.

    A class nobody has uploaded has neither centroid nor image.

    Args:
        output: ``pairs``: prototypes come from R^C and go out as (image, latent) pairs, as in FedKTL; ``table``:
            prototypes come from R^d and the centroids go out as a table in R^d, by a fixed orthogonal map, for use with
            an alignment loss. With ``table`` only the latent law of the generator matters, no image is made.
        generator: makes images from latents of N(0, I).
        training: of Phi and R.
    """

    def __init__(self, output: str, generator: GeneratorSource, training: LatentTraining) -> None:
        self.output, self.source, self.training = one_of("output", output, ("table", "pairs")), generator, training

    def prepare(self, context: ServerContext) -> None:
        """Draw Phi and R (standard normal) from the seed.

        Raises:
            ValueError: ``pairs`` for clients whose data are not images.
        """
        if self.output == "pairs" and context.images is None:
            raise ValueError(
                "prototype.output=pairs, which method=fedktl needs, makes images, but the clients' data are none; "
                "take a data set of images, or prototype=generator_prior with method=prototype"
            )
        self._seed, self._facts = context.seed, context.images
        self._width = context.num_classes if self.output == "pairs" else context.feature_dim
        with seeded(context.seed, "prototypes/generator_prior/init"):
            self._latent = LatentAlignment(context.num_classes, self._width, self.source.latent_dim)
        draws = torch_generator(context.seed, "prototypes/generator_prior/projection")
        self._projection = semi_orthogonal(self.source.latent_dim, context.feature_dim, draws)
        self._seen = torch.zeros(context.num_classes, dtype=torch.bool)
        self._generator: nn.Module | None = None

    def _made_generator(self) -> nn.Module:
        """Return the generator; a decoder is trained when first asked for, on rank zero alone."""
        if self._generator is None:
            self._generator = self.source.build(self._facts, self._seed)
        return self._generator

    def update(self, uploads: Sequence[Upload], round: int) -> dict[str, float]:
        """Move the centroids by the uploads of one round: recentre, train, recentre; without any pair nothing happens.

        Returns:
            ``num_prototypes``: classes ever uploaded; with at least two pairs also ``loss``.

        Raises:
            ValueError: malformed message.
            FloatingPointError: NaN or Inf in the values, or a training that diverges.
        """
        labels, values, _ = uploaded_pairs(uploads, len(self._seen), self._width)
        metrics = {}
        if len(labels):
            prototypes = F.normalize(values, dim=1)
            self._latent.recentre(prototypes, labels)
            draws = torch_generator(self._seed, "prototypes/generator_prior/train", round)
            loss = self._latent.fit(prototypes, labels, self.training, draws)
            self._latent.recentre(prototypes, labels)
            metrics = {} if loss is None else {"loss": loss}
            self._seen[labels] = True
        return {"num_prototypes": float(self._seen.sum()), **metrics}

    def broadcast(self) -> Message | None:
        """Return the classes ever uploaded with ``values``, or with ``latents`` and ``images``; None without any."""
        centroids = self._latent.centroids.detach()
        if self.output == "table":
            return ClassTable(centroids @ self._projection, self._seen).to_broadcast()
        known = ClassTable(centroids, self._seen)
        if not len(known.labels):
            return None
        images = make_images(self._made_generator(), known.rows, self._facts)
        return {"labels": known.labels, "latents": known.rows, "images": images}

    def state_dict(self) -> dict[str, Tensor]:
        """Return Phi, R, the classes ever uploaded and a decoder's weights; a generator from a file stays there."""
        return {name: tensor.detach().clone() for name, tensor in self._state(self._decoder(trained=True)).items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state_dict` returned, without training a decoder again; ValueError for anything else."""
        decoder = self._decoder(trained=False)
        restore("GeneratorPrior", self._state(decoder), state)
        if decoder is not None:
            self._generator = decoder.requires_grad_(False)

    def _decoder(self, trained: bool) -> nn.Module | None:
        """Return the decoder whose weights belong to the state; None where no decoder is used."""
        if self.output == "table" or self.source.kind == "file":
            return None
        return self._made_generator() if trained else self.source.skeleton(self._facts, self._seed)

    def _state(self, decoder: nn.Module | None) -> dict[str, Tensor]:
        weights = {} if decoder is None else decoder.state_dict(prefix="generator.")
        return {"seen": self._seen, **self._latent.state_dict(), **weights}
