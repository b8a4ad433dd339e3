"""The architectures a model group may name: the papers' image trunks by short names, and all of timm.

Every trunk maps images (B, channels, s, s) to pooled features (B, W), W being its attribute ``num_features``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import timm
from torch import nn

from fedsaf.models import adaptation, cnn, googlenet, resnet_small  # noqa: F401  the last three register with timm
from fedsaf.models.pretrained import find_weights
from fedsaf.models.trial import measured_width, patch_size_of, smallest_size, trial


@dataclass(frozen=True)
class ImageArchitecture:
    """How to build one trunk, and what a federation has to know about it.

    Attributes:
        name: the name in model groups.
        timm_name: the name under which ``timm.create_model`` knows it.
        batch_norm: whether it normalises by the batch, so that a batch of one sample is refused.
        channels_last_from: smallest batch from which that memory layout trains faster on a CPU; None for never, see
            ``ARCHITECTURES``.
        cost: time of training per sample relative to ResNet-18.
        options: further arguments of ``timm.create_model``.
        initialise: sets the papers' initial weights where timm's differ.
        use_small_stem: puts a full-resolution stem into a built trunk; None if nobody has defined one.
        min_image_size: smallest side of an image, with the stem of the papers.
        patch_size: the side of an image must be a multiple of it.
    """

    name: str
    timm_name: str
    batch_norm: bool
    channels_last_from: int | None
    cost: float
    options: Mapping[str, Any] = field(default_factory=dict)
    initialise: Callable[[nn.Module], None] | None = None
    use_small_stem: Callable[[nn.Module], None] | None = None
    min_image_size: int = 1
    patch_size: int = 1

    def check_images(self, in_channels: int, image_size: int) -> None:
        """Raise a ValueError that names this architecture, and a size it can read, if it cannot read such images.

        An architecture that nobody described here is tried out, on the meta device.
        """
        if in_channels < 1:
            raise ValueError(f"in_channels={in_channels}: architecture {self.name!r} needs at least one.")
        if image_size < self.min_image_size:
            raise ValueError(
                f"dataset.image_size={image_size}: architecture {self.name!r} needs at least {self.min_image_size}."
            )
        if image_size % self.patch_size:
            raise ValueError(
                f"dataset.image_size={image_size}: architecture {self.name!r} needs a multiple of its patch size "
                f"{self.patch_size}; the next is {-(-image_size // self.patch_size) * self.patch_size}."
            )
        if self.name not in ARCHITECTURES:
            try:
                with trial():
                    self.build(in_channels, image_size)
            except Exception as error:
                smallest = smallest_size(self._reader(in_channels), self.patch_size, self._native_size())
                known = f"it reads dataset.image_size={smallest}" if smallest else "no size was found that it reads"
                raise ValueError(
                    f"dataset.image_size={image_size}: architecture {self.name!r} cannot read {in_channels} x "
                    f"{image_size} x {image_size} images; {known}. It says: {error}"
                ) from error

    def _reader(self, in_channels: int) -> Callable[[int], bool]:
        """Return whether the network reads images of a side; it is built once if it is the same for all sides."""
        with trial():
            built = None if self._takes_image_size() else self._create(in_channels, 1)

        def reads(image_size: int) -> bool:
            try:
                with trial():
                    trunk = self._create(in_channels, image_size) if built is None else built
                    measured_width(trunk, in_channels, image_size)
            except Exception:  # whatever a network says to a size that it cannot read
                return False
            return True

        return reads

    def _native_size(self) -> int | None:
        """Side of the images that timm's weights were trained on."""
        config = timm.models.get_pretrained_cfg(self.timm_name)
        return None if config is None else config.input_size[-1]

    def find_weights(self, folder: str | None) -> Path:
        """Return the file with pretrained weights; see :func:`fedsaf.models.pretrained.find_weights`."""
        return find_weights(self.name, self.timm_name, folder)

    def check_small_stem(self, pretrained: bool) -> None:
        """Raise a ValueError if this architecture has no small stem, or would lose pretrained weights to it."""
        if self.use_small_stem is None:
            raise ValueError(f"small_stem=true, but architecture {self.name!r} has no small stem; set it to false.")
        if pretrained:
            raise ValueError("small_stem=true replaces pretrained layers; set small_stem or pretrained to false.")

    def build(
        self, in_channels: int, image_size: int, small_stem: bool = False, weights: Path | None = None
    ) -> nn.Module:
        """Build the trunk with random weights of the ambient torch generator, or with ``weights``.

        Args:
            in_channels: channels of the images; pretrained first convolutions are adapted by timm.
            image_size: side s of the images.
            small_stem: whether to keep the full resolution in the stem; no effect on CNNs and ViTs.
            weights: file with pretrained weights, or None.

        Raises:
            ValueError: if the small stem is undefined or would replace pretrained layers, or if a network that nobody
                described here has another output than one vector per image.
        """
        if small_stem:
            self.check_small_stem(weights is not None)
        trunk = self._create(in_channels, image_size, weights)
        if self.name not in ARCHITECTURES:
            trunk.num_features = measured_width(trunk, in_channels, image_size)
        if self.initialise is not None and weights is None:
            self.initialise(trunk)
        if small_stem and self.use_small_stem is not None:
            self.use_small_stem(trunk)
        return trunk

    def _create(self, in_channels: int, image_size: int, weights: Path | None = None) -> Any:
        return timm.create_model(
            self.timm_name,
            pretrained=weights is not None,
            pretrained_cfg_overlay={"file": str(weights), "custom_load": False} if weights else None,
            num_classes=0,
            in_chans=in_channels,
            img_size=image_size if self._takes_image_size() else None,
            **self.options,
        )

    def _takes_image_size(self) -> bool:
        """Whether the parameters depend on the image size; timm says so for its own networks."""
        config = timm.models.get_pretrained_cfg(self.timm_name)
        return config is None or config.fixed_input_size


def _resnet(name: str, channels_last_from: int, cost: float) -> ImageArchitecture:
    own = name in ("resnet4", "resnet6", "resnet8", "resnet10")
    options = {} if own else {"zero_init_last": False}
    stem = adaptation.resnet_small_stem
    return ImageArchitecture(name, name, True, channels_last_from, cost, options, use_small_stem=stem)


def _cnn(name: str, cost: float) -> ImageArchitecture:
    return ImageArchitecture(name, name, False, 1, cost, use_small_stem=adaptation.no_small_stem, min_image_size=16)


def _vit(name: str, timm_name: str, cost: float, patch_size: int) -> ImageArchitecture:
    return ImageArchitecture(
        name,
        timm_name,
        batch_norm=False,
        channels_last_from=None,
        cost=cost,
        initialise=adaptation.vit_initialisation,
        use_small_stem=adaptation.no_small_stem,
        min_image_size=patch_size,
        patch_size=patch_size,
    )


ARCHITECTURES: dict[str, ImageArchitecture] = {
    architecture.name: architecture
    for architecture in (
        _cnn("cnn", cost=0.11),
        _cnn("simple_cnn", cost=0.03),
        _resnet("resnet4", channels_last_from=1, cost=0.1),
        _resnet("resnet6", channels_last_from=1, cost=0.14),
        _resnet("resnet8", channels_last_from=1, cost=0.24),
        _resnet("resnet10", channels_last_from=64, cost=0.44),
        _resnet("resnet18", channels_last_from=64, cost=1.0),
        _resnet("resnet34", channels_last_from=64, cost=1.8),
        _resnet("resnet50", channels_last_from=1, cost=1.7),
        _resnet("resnet101", channels_last_from=1, cost=3.1),
        _resnet("resnet152", channels_last_from=1, cost=4.2),
        ImageArchitecture(
            "googlenet",
            "googlenet",
            batch_norm=True,
            channels_last_from=1,
            cost=0.57,
            options={"drop_rate": 0.2},
            use_small_stem=adaptation.googlenet_small_stem,
            min_image_size=15,
        ),
        ImageArchitecture(
            "mobilenetv2",
            "mobilenetv2_100",
            batch_norm=True,
            channels_last_from=1,
            cost=0.7,
            options={"drop_rate": 0.2},
            initialise=adaptation.mobilenet_initialisation,
            use_small_stem=adaptation.mobilenet_small_stem,
        ),
        _vit("vit_b_16", "vit_base_patch16_224", cost=4.5, patch_size=16),
        _vit("vit_b_32", "vit_base_patch32_224", cost=2.3, patch_size=32),
    )
}
"""By name; costs and layouts from training steps (cross-entropy, SGD) on one CPU thread, float32, 3 x 32 x 32 images.

With batches of 100, channels-last wins for every convolutional network. ResNet-10, 18 and 34, whose 3 x 3 filters
between 512 channels meet maps of one pixel, took 1.5 times as long in it with batches of 10, 1.1 times with 32, 0.9
times with 100.
"""


def find_architecture(name: str) -> ImageArchitecture:
    """Return the architecture called ``name``: one of ``ARCHITECTURES``, or any model of timm.

    Raises:
        ValueError: if nothing is called so; the message lists the nearest names.
    """
    if name in ARCHITECTURES:
        return ARCHITECTURES[name]
    if timm.is_model(name):
        return _from_timm(name)
    nearest = get_close_matches(name, ARCHITECTURES, n=3, cutoff=0.5) + get_close_matches(name, timm.list_models(), n=3)
    known = ", ".join(dict.fromkeys(nearest)) or ", ".join(ARCHITECTURES)
    raise ValueError(f"architectures contains {name!r}, which neither this project nor timm knows; nearest: {known}.")


@cache
def _from_timm(name: str) -> ImageArchitecture:
    """Describe a model of timm that nobody measured: its cost is ResNet-18's, scaled by the number of parameters."""
    with trial():
        trunk = timm.create_model(name, num_classes=0)
    patch_size = patch_size_of(trunk)
    return ImageArchitecture(
        name,
        name,
        batch_norm=any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in trunk.modules()),
        channels_last_from=None,
        cost=sum(parameter.numel() for parameter in trunk.parameters()) / 11_176_512,
        min_image_size=patch_size,
        patch_size=patch_size,
    )
