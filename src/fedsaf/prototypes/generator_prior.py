"""Prototypes in the latent space of an image generator, and one image per class from there: the server of FedKTL.

Dimension letters: K classes of a message, p prototype width, w latent width, d feature dimension, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsaf.core.contracts import Aggregator, restore
from fedsaf.core.seeding import seeded, torch_generator
from fedsaf.core.types import Message, ServerContext, Upload
from fedsaf.prototypes.class_table import ClassTable, uploaded_pairs
from fedsaf.prototypes.decoders import GeneratorSource, make_images
from fedsaf.prototypes.latent import LatentAlignment, LatentTraining
from fedsaf.prototypes.projection import semi_orthogonal

OUTPUTS = ("table", "pairs")
GENERATOR = "generator."


class GeneratorPrior(Aggregator):
    """Latent centroids R_c, moved each round to where a network Phi maps the uploaded prototypes of class c.

    Phi is trained so that the mapped prototypes follow the latent law of the generator, see `LatentAlignment`; then one
    image is made from each R_c. A class nobody has uploaded has neither centroid nor image.

    Deviation: public code sends the pair of such a class too, from an untrained random centroid.

    Only ``file`` with a pretrained generator is FedKTL as published. Results of the decoders are "FedKTL-style".

    Attributes:
        needs_counts: False.
        needs_uploads: True.
    """

    def __init__(self, output: str, generator: GeneratorSource, training: LatentTraining) -> None:
        """Choose what is sent.

        Args:
            output: ``pairs``: prototypes come from R^C and go out as (image, latent) pairs, as in FedKTL; ``table``:
                prototypes come from R^d and the centroids go out as a table in R^d, by a fixed orthogonal map, for use
                with an alignment loss. With ``table`` only the latent law of the generator matters, no image is made.
            generator: makes images from latents of N(0, I).
            training: of Phi and R.

        Raises:
            ValueError: unknown output.
        """
        if output not in OUTPUTS:
            raise ValueError(f"output must be one of {OUTPUTS}, got {output!r}")
        self.output, self.source, self.training = output, generator, training

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
        width = context.num_classes if self.output == "pairs" else context.feature_dim
        with seeded(context.seed, "prototypes/generator_prior/init"):
            self._latent = LatentAlignment(context.num_classes, width, self.source.latent_dim)
        draws = torch_generator(context.seed, "prototypes/generator_prior/projection")
        self._projection = semi_orthogonal(self.source.latent_dim, context.feature_dim, draws)
        self._seen = torch.zeros(context.num_classes, dtype=torch.bool)
        self._width = width
        self._generator: nn.Module | None = None

    def _made_generator(self) -> nn.Module:
        """Return the generator; a decoder is trained when first asked for, on rank zero alone."""
        if self._generator is None:
            self._generator = self.source.build(self._facts, self._seed)
        return self._generator

    def update(self, uploads: Sequence[Upload], round: int) -> dict[str, float]:
        """Move the centroids by the uploads of one round: recentre, train, recentre.

        Args:
            uploads: messages with ``labels`` (K,) and ``values`` (K, p), normalised here; K may be 0. Without any pair
                nothing happens.
            round: keys orders and latents.

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
        """Return ``labels`` of the classes ever uploaded with ``values``, or with ``latents`` and ``images``.

        None before the first upload.
        """
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
        """Restore what ``state_dict`` returned, without training a decoder again; ValueError for anything else."""
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
        state = {"seen": self._seen, **self._latent.state_dict()}
        if decoder is not None:
            state |= {f"{GENERATOR}{name}": tensor for name, tensor in decoder.state_dict().items()}
        return state
