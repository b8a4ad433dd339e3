"""Which client trains which network.

Dimension letters: X architectures of a group, d feature dimension, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fedsaf.models.backbones import Architecture, find_architecture
from fedsaf.models.heads import build_head, check_head
from fedsaf.models.projection import check_feature_map
from fedsaf.models.split import SplitModel

_MEMORY_FORMATS = {"channels_last": torch.channels_last, "contiguous": torch.contiguous_format}


class ModelGroup:
    """An ordered list of architectures; client i trains number i mod X, as in HtFLlib, FedTGP and FedSAF.

    Args:
        name: name of the group in records and tables.
        architectures: the X names, see :func:`fedsaf.models.backbones.find_architecture`.
        heads: names of heads, see :data:`fedsaf.models.heads.HEADS`; client i has number i mod their count.
        feature_dim: d, equal for all clients.
        feature_map: how a trunk's width becomes d, see :class:`fedsaf.models.split.SplitModel`.
        small_stem: whether to keep the full resolution in the stem; no effect on CNNs and ViTs.
        final_relu: whether HtC heads end in a ReLU, as HtFLlib has it.
        pretrained: whether trunks start from pretrained weights.
        pretrained_path: folder with one ``<architecture>.safetensors`` each, or None for timm's weights.
        memory_format: ``"channels_last"``, ``"contiguous"``, or ``"auto"`` for what was faster with the architecture
            and the batch size.

    Raises:
        ValueError: for an empty list, an unknown name, a feature dimension below one, or options that contradict or
            do nothing.
    """

    def __init__(
        self,
        name: str,
        architectures: Sequence[str],
        heads: Sequence[str],
        feature_dim: int,
        feature_map: str,
        small_stem: bool,
        final_relu: bool,
        pretrained: bool,
        pretrained_path: str | None,
        memory_format: str,
    ) -> None:
        self.name = name
        self.architectures = tuple(architectures)
        self.heads = tuple(heads)
        self.feature_dim = feature_dim
        self.feature_map = feature_map
        self.small_stem = small_stem
        self.final_relu = final_relu
        self.pretrained = pretrained
        self.pretrained_path = pretrained_path
        self.memory_format = memory_format
        self._check_options()

    def _check_options(self) -> None:
        for argument in ("architectures", "heads"):
            if not getattr(self, argument):
                raise ValueError(f"{argument} is empty, expected at least one name.")
        if self.feature_dim < 1:
            raise ValueError(f"feature_dim={self.feature_dim}, expected at least 1.")
        check_feature_map(self.feature_map)
        if self.memory_format not in ("auto", *_MEMORY_FORMATS):
            raise ValueError(
                f"memory_format={self.memory_format!r}, expected one of: auto, {', '.join(_MEMORY_FORMATS)}."
            )
        if self.pretrained_path is not None and not self.pretrained:
            raise ValueError(f"pretrained_path={self.pretrained_path!r} is given, but pretrained is false.")
        for head in self.heads:
            check_head(head)
            if self.final_relu and not head.startswith("htc"):
                raise ValueError(f"final_relu=true applies to HtC heads only, but heads contains {head!r}.")
        for architecture in map(find_architecture, self.architectures):
            if self.small_stem:
                architecture.check_small_stem(self.pretrained)

    def architecture_of(self, client: int) -> Architecture:
        """Return the architecture of a client: number ``client`` mod X."""
        return find_architecture(self.architectures[client % len(self.architectures)])

    def head_of(self, client: int) -> str:
        """Return the name of a client's head."""
        return self.heads[client % len(self.heads)]

    def build(self, client: int, num_classes: int, in_channels: int, image_size: int) -> SplitModel:
        """Build the model of a client from the ambient torch generator, which the caller seeds.

        The images are such that :meth:`check` accepts them.

        Args:
            client: client id, from 0.
            num_classes: C.
            in_channels: channels of the images.
            image_size: side of the images.

        Raises:
            FileNotFoundError: if pretrained weights are asked for and cannot be had.
        """
        architecture = self.architecture_of(client)
        weights = architecture.find_weights(self.pretrained_path) if self.pretrained else None
        backbone = architecture.build(in_channels, image_size, self.small_stem, weights)
        head = build_head(self.head_of(client), self.feature_dim, num_classes, self.final_relu)
        return SplitModel(backbone, head, self.feature_dim, self.feature_map)

    def memory_format_of(self, client: int, batch_size: int) -> torch.memory_format:
        """Return the layout for a client's convolutions and images, given the size of its training batches."""
        if self.memory_format != "auto":
            return _MEMORY_FORMATS[self.memory_format]
        least = self.architecture_of(client).channels_last_from
        return torch.contiguous_format if least is None or batch_size < least else torch.channels_last

    def cost_of(self, client: int) -> float:
        """Return the training time per sample of a client's trunk, relative to ResNet-18."""
        return self.architecture_of(client).cost

    def init_key(self, client: int) -> int:
        """Return a number that two clients share exactly if their models have the same shape.

        Seeding by it gives equal architectures equal initial weights.
        """
        architecture, head = self.architecture_of(client).name, self.head_of(client)
        return self.architectures.index(architecture) * len(self.heads) + self.heads.index(head)

    def check(self, batch_size: int, image_size: int, in_channels: int) -> None:
        """Refuse, before anything is built, data that some architecture of the group cannot train on.

        Args:
            batch_size: samples per training batch.
            image_size: side of the images.
            in_channels: channels of the images.

        Raises:
            ValueError: if batch normalisation meets batches of one sample, or images are too small, not a multiple of
                the patch size, or without channels; the message names the architecture.
            FileNotFoundError: if pretrained weights are asked for and cannot be had.
        """
        for architecture in map(find_architecture, dict.fromkeys(self.architectures)):
            if batch_size == 1 and architecture.batch_norm:
                raise ValueError(
                    f"batch_size=1: architecture {architecture.name!r} of model group {self.name!r} has batch "
                    "normalisation, which needs at least 2 samples per batch."
                )
            architecture.check_images(in_channels, image_size)
            if self.pretrained:
                architecture.find_weights(self.pretrained_path)
