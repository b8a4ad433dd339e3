"""GoogLeNet of torchvision as a trunk, registered with timm, which has no such network."""

from __future__ import annotations

from typing import Any

from timm.models import register_model
from torch import nn
from torchvision.models import GoogLeNet


@register_model
def googlenet(pretrained: bool = False, in_chans: int = 3, drop_rate: float = 0.2, **_: Any) -> GoogLeNet:
    """GoogLeNet with batch normalisation, without auxiliary classifiers and input transform; W = 1024.

    Dropout acts on the pooled output in training mode. Convolutions start from a normal of deviation 0.01 cut at 2.
    """
    model = GoogLeNet(num_classes=1, aux_logits=False, transform_input=False, init_weights=True, dropout=drop_rate)
    model.fc = nn.Identity()
    model.num_features = 1024
    if in_chans != 3:
        replace_first_convolution(model, in_chans, kernel_size=7, stride=2)
    return model


def replace_first_convolution(model: GoogLeNet, in_chans: int, kernel_size: int, stride: int) -> None:
    """Put a new first convolution of torchvision's initial distribution into ``model``; it keeps its width."""
    convolution = nn.Conv2d(
        in_chans, model.conv1.conv.out_channels, kernel_size, stride, padding=kernel_size // 2, bias=False
    )
    nn.init.trunc_normal_(convolution.weight, std=0.01, a=-2, b=2)
    model.conv1.conv = convolution
