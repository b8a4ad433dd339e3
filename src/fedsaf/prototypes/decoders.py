"""Image generators for FedKTL: a user's own, a small decoder trained on public images, or a random one.

A generator maps latents (n, w), drawn from N(0, I), to images (n, channels, s, s) in [0, 1].
Dimension letters: n images, w latent width, s image side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsaf.core.checks import one_of, positive
from fedsaf.core.seeding import seeded
from fedsaf.core.types import ImageFacts

GENERATORS = ("file", "trained_decoder", "random_decoder")
BASE = 4
"""Side of the smallest feature map."""


def _num_scales(size: int) -> int:
    return max(1, math.ceil(math.log2(size / BASE)))


class Decoder(nn.Sequential):
    """Latents to images: a 4 x 4 map, doubled by nearest neighbours and convolved until it covers the image."""

    def __init__(self, latent_dim: int, width: int, channels: int, size: int) -> None:
        layers: list[nn.Module] = [nn.Linear(latent_dim, width * BASE**2), nn.Unflatten(1, (width, BASE, BASE))]
        for _ in range(_num_scales(size)):
            layers += [nn.ReLU(), nn.Upsample(scale_factor=2), nn.Conv2d(width, width, 3, padding=1)]
        super().__init__(*layers, nn.ReLU(), nn.Conv2d(width, channels, 3, padding=1), nn.Sigmoid())
        self.size = size

    def forward(self, latents: Tensor) -> Tensor:
        """Map (n, w) to (n, channels, s, s) in [0, 1]."""
        return resized(super().forward(latents), self.size)


class Encoder(nn.Sequential):
    """Images to means and log variances of their latents: halved by strided convolutions down to 4 x 4."""

    def __init__(self, latent_dim: int, width: int, channels: int, size: int) -> None:
        layers: list[nn.Module] = []
        for scale in range(_num_scales(size)):
            layers += [nn.Conv2d(width if scale else channels, width, 3, stride=2, padding=1), nn.ReLU()]
        super().__init__(*layers, nn.AdaptiveAvgPool2d(BASE), nn.Flatten(), nn.Linear(width * BASE**2, 2 * latent_dim))


def resized(images: Tensor, size: int) -> Tensor:
    """Return (n, channels, s, s) images of side ``size``, bilinear with antialiasing; as they are if they have it."""
    if images.shape[-2:] == (size, size):
        return images
    return F.interpolate(images, size=(size, size), mode="bilinear", align_corners=False, antialias=True)


def recoloured(images: Tensor, channels: int) -> Tensor:
    """Return images with 1 or 3 channels: the mean of three, or three copies of one."""
    if images.shape[1] == channels:
        return images
    return images.mean(dim=1, keepdim=True) if channels == 1 else images.expand(-1, channels, -1, -1)


def vae_loss(reconstruction: Tensor, images: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """Negative evidence lower bound of a variational autoencoder, sum over pixels and latents, mean over images.

    Binary cross-entropy of the pixels plus ``KL(N(mean, variance) || N(0, I))``.

    >>> half = torch.full((1, 1, 1, 1), 0.5)
    >>> vae_loss(half, half, torch.zeros(1, 2), torch.zeros(1, 2))  # log 2
    tensor(0.6931)
    """
    pixels = F.binary_cross_entropy(reconstruction, images, reduction="sum")
    divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
    return (pixels + divergence) / len(images)


@dataclass(frozen=True)
class GeneratorSource:
    """Which generator, and how a decoder is made.

    Attributes:
        kind: ``file``: a user's own; ``trained_decoder``: the decoder of a variational autoencoder trained on
            ``images``; ``random_decoder``: its weights as drawn, a control that carries no knowledge of images.
        path: of ``file``: a program written by ``torch.export.save``, (n, w) -> (n, 1 or 3, s', s') in [0, 1] for any
            n and latents from N(0, I).
        images: of ``trained_decoder``: a data source with ``load(seed)``; must not be the clients' data.
        latent_dim: w.
        width: channels of the decoder's maps.
        epochs: of ``trained_decoder``.
        batch_size: of ``trained_decoder``.
        lr: of Adam, of ``trained_decoder``.
    """

    kind: str
    path: str | None
    images: Any
    latent_dim: int
    width: int
    epochs: int
    batch_size: int
    lr: float

    def __post_init__(self) -> None:
        one_of("kind", self.kind, GENERATORS)
        if (self.kind == "file") != (self.path is not None):
            raise ValueError(f"path={self.path!r} with kind={self.kind!r}: 'file' needs a path, the others read none")
        positive(**{name: getattr(self, name) for name in ("latent_dim", "width", "epochs", "batch_size", "lr")})

    def skeleton(self, facts: ImageFacts, seed: int) -> nn.Module:
        """Return the generator before any training: a file's as it is, a decoder with drawn weights."""
        if self.kind == "file":
            path = Path(self.path).expanduser()
            if not path.is_file():
                raise ValueError(f"path={self.path!r} must be a file written by torch.export.save")
            return torch.export.load(path).module()
        with seeded(seed, "prototypes/decoder/init"):
            return Decoder(self.latent_dim, self.width, facts.channels, facts.size)

    def build(self, facts: ImageFacts, seed: int) -> nn.Module:
        """Return the generator; a trained decoder is trained here, a decoder is frozen from here on.

        Raises:
            ValueError: no usable file or images, or images that are the clients' own.
        """
        generator = self.skeleton(facts, seed)
        if self.kind == "file":
            return generator
        if self.kind == "trained_decoder":
            dataset = self.images.load(seed)
            if dataset.fingerprint == facts.fingerprint:
                raise ValueError("generator.images are the clients' own data; name other, public images")
            images = resized(recoloured(dataset.inputs.float() / 255, facts.channels), facts.size).clamp(0, 1)
            with seeded(seed, "prototypes/decoder/train"):
                self._train(generator, images)
        return generator.requires_grad_(False)

    @torch.enable_grad()
    def _train(self, decoder: Decoder, images: Tensor) -> None:
        encoder = Encoder(self.latent_dim, self.width, images.shape[1], images.shape[2])
        optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=self.lr)
        for _ in range(self.epochs):
            for batch in torch.randperm(len(images)).split(self.batch_size):
                mean, log_variance = encoder(images[batch]).chunk(2, dim=1)
                latents = mean + (log_variance / 2).exp() * torch.randn_like(mean)
                loss = vae_loss(decoder(latents), images[batch], mean, log_variance)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        if not math.isfinite(loss.item()):
            raise FloatingPointError(f"the training of the decoder diverged: loss {loss.item()}")


def make_images(generator: nn.Module, latents: Tensor, facts: ImageFacts) -> Tensor:
    """Return one image per latent, resized and normalised as the clients' images are: (n, channels, s, s) float32.

    Raises:
        ValueError: the generator gives something else than finite images.
    """
    with torch.no_grad():
        images = generator(latents)
    if images.ndim != 4 or images.shape[0] != len(latents) or images.shape[1] not in (1, 3):
        raise ValueError(f"the generator must give ({len(latents)}, 1 or 3, s, s) images, got {tuple(images.shape)}")
    if not images.isfinite().all():
        raise ValueError("the generator gives NaN or Inf")
    images = resized(recoloured(images.float(), facts.channels), facts.size).clamp(0, 1)
    mean, std = (torch.tensor(values).view(1, -1, 1, 1) for values in (facts.mean, facts.std))
    return (images - mean) / std
