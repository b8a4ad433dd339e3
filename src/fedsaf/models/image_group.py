"""Groups of networks that read images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedsaf.core.types import ImageFacts, InputFacts
from fedsaf.models.backbones import ImageArchitecture, find_architecture
from fedsaf.models.groups import ModelGroup

_MEMORY_FORMATS = {"channels_last": torch.channels_last, "contiguous": torch.contiguous_format}

HTC_AUXILIARY = "cnn"
"""What groups with several heads (HtC) share as small model, CNN-4; every other group takes its first architecture."""


class ImageGroup(ModelGroup):
    """Image trunks, see :func:`fedsaf.models.backbones.find_architecture`.

    Args:
        name: see :class:`fedsaf.models.groups.ModelGroup`, as for the other common ones.
        architectures: the X names, of this project or of timm.
        heads: names of heads.
        feature_dim: d.
        feature_map: how a trunk's width becomes d.
        small_stem: whether to keep the full resolution in the stem; no effect on CNNs and ViTs.
        final_relu: whether HtC heads end in a ReLU.
        pretrained: whether trunks start from pretrained weights.
        pretrained_path: folder with one ``<architecture>.safetensors`` each, or None for timm's weights.
        memory_format: ``"channels_last"``, ``"contiguous"``, or ``"auto"`` for what was faster with the architecture
            and the batch size.

    Raises:
        ValueError: see :class:`fedsaf.models.groups.ModelGroup`; or for options that contradict or do nothing.
    """

    reads = ImageFacts

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
        super().__init__(name, architectures, heads, feature_dim, feature_map, final_relu)
        self.small_stem = small_stem
        self.pretrained = pretrained
        self.pretrained_path = pretrained_path
        self.memory_format = memory_format
        if memory_format not in ("auto", *_MEMORY_FORMATS):
            raise ValueError(f"memory_format={memory_format!r}, expected one of: auto, {', '.join(_MEMORY_FORMATS)}.")
        if pretrained_path is not None and not pretrained:
            raise ValueError(f"pretrained_path={pretrained_path!r} is given, but pretrained is false.")
        if small_stem:
            for architecture in map(find_architecture, self.architectures):
                architecture.check_small_stem(pretrained)

    def find_architecture(self, name: str) -> ImageArchitecture:
        """Return what is known about a trunk of this project or of timm."""
        return find_architecture(name)

    def check_architecture(self, name: str, inputs: ImageFacts) -> None:
        """Raise a ValueError if the trunk cannot read such images; the message says which it can."""
        find_architecture(name).check_images(inputs.channels, inputs.size)

    def build_trunk(self, name: str, inputs: ImageFacts) -> nn.Module:
        """Return a trunk that maps images (B, channels, s, s) to (B, W)."""
        return self._build(name, inputs, None)

    def build_client_trunk(self, client: int, inputs: ImageFacts) -> nn.Module:
        """Return the trunk that a client starts from, with pretrained weights if they are asked for."""
        architecture = find_architecture(self.architecture_of(client).name)
        weights = architecture.find_weights(self.pretrained_path) if self.pretrained else None
        return self._build(architecture.name, inputs, weights)

    def _build(self, name: str, inputs: ImageFacts, weights: Path | None) -> nn.Module:
        return find_architecture(name).build(inputs.channels, inputs.size, self.small_stem, weights)

    @property
    def auxiliary(self) -> str:
        """Architecture of the small model that all clients share: CNN-4 in HtC groups, else the first of the list."""
        return HTC_AUXILIARY if any(head.startswith("htc") for head in self.heads) else super().auxiliary

    def memory_format_of(self, client: int, batch_size: int) -> torch.memory_format:
        """Return the layout for a client's convolutions and images, given the size of its training batches."""
        if self.memory_format != "auto":
            return _MEMORY_FORMATS[self.memory_format]
        least = find_architecture(self.architecture_of(client).name).channels_last_from
        return torch.contiguous_format if least is None or batch_size < least else torch.channels_last

    def check(self, batch_size: int, inputs: InputFacts) -> None:
        """Refuse, before anything is built, data that some architecture of the group cannot train on.

        Args:
            batch_size: samples per training batch.
            inputs: what the clients' inputs are like.

        Raises:
            ValueError: see :meth:`fedsaf.models.groups.ModelGroup.check`; or if batch normalisation meets batches of
                one sample; the message names the architecture.
            FileNotFoundError: if pretrained weights are asked for and cannot be had.
        """
        super().check(batch_size, inputs)
        for architecture in map(find_architecture, dict.fromkeys(self.architectures)):
            if batch_size == 1 and architecture.batch_norm:
                raise ValueError(
                    f"batch_size=1: architecture {architecture.name!r} of model group {self.name!r} has batch "
                    "normalisation, which needs at least 2 samples per batch."
                )
            if self.pretrained:
                architecture.find_weights(self.pretrained_path)


class TimmGroup(ImageGroup):
    """A group of any models of timm, made on the command line.

    Args:
        backbones: the names, in order.
        options: the other arguments of :class:`ImageGroup`.

    Raises:
        ValueError: if there is no name, or see :class:`ImageGroup`.
    """

    def __init__(self, backbones: Sequence[str], **options: Any) -> None:
        if not backbones:
            raise ValueError(
                "model_group.backbones is empty, expected names of timm, for example "
                "model_group.backbones=[resnet18,mobilenetv3_small_100,vit_tiny_patch16_224]."
            )
        super().__init__(architectures=backbones, **options)
