"""What is done to a freshly built trunk: the papers' initial weights, and stems for small images.

The papers take MobileNetV2 and ViT from torchvision. timm builds the same networks from other initial distributions;
the functions ``*_initialisation`` put torchvision's back. The functions ``*_small_stem`` keep the full resolution in
the stem, as usual for images of 32 pixels; the papers do not use them. ``model`` is a torch module of the kind that a
function is named after, whose parts torch does not type.
"""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from fedsaf.models.googlenet import replace_first_convolution


def mobilenet_initialisation(model: nn.Module) -> None:
    """Kaiming normal by fan-out for every convolution; timm divides the fan-out of depthwise ones by their groups."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out")


def vit_initialisation(model: Any) -> None:
    """Xavier uniform for query-key-value and MLP, truncated normal patches, class token zero, positions normal 0.02."""
    patches = model.patch_embed.proj
    nn.init.trunc_normal_(patches.weight, std=math.sqrt(1 / patches.weight[0].numel()))
    nn.init.zeros_(patches.bias)
    nn.init.zeros_(model.cls_token)
    nn.init.normal_(model.pos_embed, std=0.02)
    for block in model.blocks:
        nn.init.xavier_uniform_(block.attn.qkv.weight)
        nn.init.zeros_(block.attn.qkv.bias)
        block.attn.proj.reset_parameters()
        nn.init.zeros_(block.attn.proj.bias)
        for linear in (block.mlp.fc1, block.mlp.fc2):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.normal_(linear.bias, std=1e-6)


def no_small_stem(model: nn.Module) -> None:
    """Leave ``model`` as it is: CNNs start at stride one anyway, and a patch embedding has no stem."""


def resnet_small_stem(model: Any) -> None:
    """Replace 7 x 7 / 2 and max pooling by 3 x 3 / 1: the first stage sees s x s instead of s/4 x s/4."""
    stem = nn.Conv2d(model.conv1.in_channels, model.conv1.out_channels, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(stem.weight, mode="fan_out", nonlinearity="relu")
    model.conv1 = stem
    model.maxpool = nn.Identity()


def googlenet_small_stem(model: Any) -> None:
    """Replace 7 x 7 / 2 by 3 x 3 / 1, drop the stem's two poolings: the first inception sees s x s, not s/8 x s/8."""
    replace_first_convolution(model, model.conv1.conv.in_channels, kernel_size=3, stride=1)
    model.maxpool1 = nn.Identity()
    model.maxpool2 = nn.Identity()


def mobilenet_small_stem(model: Any) -> None:
    """Let the first convolution, 3 x 3 already, step by one."""
    model.conv_stem.stride = (1, 1)
