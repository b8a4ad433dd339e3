"""ResNet-4, 6, 8 and 10: timm's ResNet with one basic block per stage and one to four stages."""

from __future__ import annotations

from typing import Any

from timm.models import register_model
from timm.models.resnet import BasicBlock, ResNet
from torch import nn

_WIDTHS = (64, 128, 256, 512)


def _resnet(num_stages: int, in_chans: int) -> ResNet:
    """One basic block per stage, later stages replaced by the identity; the last BN weight of a block starts at one."""
    model = ResNet(
        BasicBlock,  # type: ignore[arg-type]  # timm's annotation asks for a block where the class is meant
        layers=(1,) * len(_WIDTHS),
        channels=_WIDTHS,
        in_chans=in_chans,
        num_classes=0,
        zero_init_last=False,
    )
    for stage in range(num_stages + 1, len(_WIDTHS) + 1):
        setattr(model, f"layer{stage}", nn.Identity())
    model.num_features = model.head_hidden_size = _WIDTHS[num_stages - 1]
    return model


@register_model
def resnet4(pretrained: bool = False, in_chans: int = 3, **_: Any) -> ResNet:
    """One block, W = 64."""
    return _resnet(1, in_chans)


@register_model
def resnet6(pretrained: bool = False, in_chans: int = 3, **_: Any) -> ResNet:
    """Two blocks, W = 128."""
    return _resnet(2, in_chans)


@register_model
def resnet8(pretrained: bool = False, in_chans: int = 3, **_: Any) -> ResNet:
    """Three blocks, W = 256."""
    return _resnet(3, in_chans)


@register_model
def resnet10(pretrained: bool = False, in_chans: int = 3, **_: Any) -> ResNet:
    """Four blocks, W = 512; unlike timm's ``resnet10t``, with the standard stem and shortcuts."""
    return _resnet(4, in_chans)
