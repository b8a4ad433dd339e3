"""Small convolutional networks that timm lacks, registered with timm under their own names."""

from __future__ import annotations

from typing import Any

from timm.models import register_model
from torch import Tensor, nn


def _map_size(image_size: int) -> int:
    """Side of the map after two rounds of (unpadded 5 x 5 convolution, 2 x 2 pooling)."""
    return ((image_size - 4) // 2 - 4) // 2


def _two_convolutions(in_chans: int, first: int, second: int) -> list[nn.Module]:
    return [
        *(nn.Conv2d(in_chans, first, 5), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        *(nn.Conv2d(first, second, 5), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        nn.Flatten(),
    ]


class PlainCnn(nn.Module):
    """Two 5 x 5 convolutions with pooling, then fully connected layers, ReLU after each; default PyTorch weights.

    Maps (B, in_chans, s, s), s >= 16, to (B, ``num_features``), non-negative.

    Args:
        in_chans: channels of the images.
        img_size: side s of the images.
        filters: filters of the first and of the second convolution.
        widths: widths of the fully connected layers; the last is the output width.

    Raises:
        ValueError: if the images are too small for the two unpadded convolutions.
    """

    def __init__(self, in_chans: int, img_size: int, filters: tuple[int, int], widths: tuple[int, ...]) -> None:
        super().__init__()
        side = _map_size(img_size)
        if side < 1:
            raise ValueError(f"img_size={img_size}: two unpadded 5 x 5 convolutions with pooling need at least 16.")
        self.features = nn.Sequential(*_two_convolutions(in_chans, *filters))
        layers: list[nn.Module] = []
        for width_in, width_out in zip((filters[1] * side * side, *widths), widths, strict=False):
            layers += [nn.Linear(width_in, width_out), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*layers)
        self.num_features = widths[-1]

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, channels, s, s) to features (B, W)."""
        return self.layers(self.features(x))


@register_model
def cnn(pretrained: bool = False, in_chans: int = 3, img_size: int = 32, **_: Any) -> PlainCnn:
    """CNN-4 of HtFE2 without its fourth layer, the head: 32 and 64 filters, one layer of 512."""
    return PlainCnn(in_chans, img_size, filters=(32, 64), widths=(512,))


@register_model
def simple_cnn(pretrained: bool = False, in_chans: int = 3, img_size: int = 32, **_: Any) -> PlainCnn:
    """Encoder of MOON and FedProc for CIFAR-10: 6 and 16 filters, layers of 120 and 84."""
    return PlainCnn(in_chans, img_size, filters=(6, 16), widths=(120, 84))
