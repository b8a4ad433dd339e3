"""Classifier heads h: representations (B, d) to logits (B, C).

Dimension letters: B batch, d feature dimension, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

from torch import nn


def linear(feature_dim: int, num_classes: int) -> nn.Module:
    """One linear layer: C(d + 1) parameters."""
    return nn.Linear(feature_dim, num_classes)


def vit(feature_dim: int, num_classes: int) -> nn.Module:
    """Two layers with Tanh, the head of ViT clients in HtM groups."""
    return nn.Sequential(nn.Linear(feature_dim, 768), nn.Tanh(), nn.Linear(768, num_classes))


def _hidden(width: int) -> Callable[[int, int], nn.Module]:
    def build(feature_dim: int, num_classes: int) -> nn.Module:
        return nn.Sequential(nn.Linear(feature_dim, width), nn.ReLU(inplace=True), nn.Linear(width, num_classes))

    return build


HEADS: dict[str, Callable[[int, int], nn.Module]] = {
    "linear": linear,
    "vit": vit,
    "htc0": linear,
    "htc1": _hidden(512),
    "htc2": _hidden(256),
    "htc3": _hidden(128),
}
"""Head builders (d, C) -> module by name; ``htc0`` to ``htc3`` are the four heads of FedTGP's HtC groups."""


def check_head(name: str) -> None:
    """Raise a ValueError with the nearest names if no head is called ``name``."""
    if name not in HEADS:
        nearest = get_close_matches(name, HEADS, n=3, cutoff=0.3) or sorted(HEADS)
        raise ValueError(f"heads contains {name!r}, expected names of heads; nearest: {', '.join(nearest)}.")


def build_head(name: str, feature_dim: int, num_classes: int, final_relu: bool) -> nn.Module:
    """Build head ``name``.

    Args:
        name: a key of ``HEADS``.
        feature_dim: d.
        num_classes: C.
        final_relu: put a ReLU behind the last layer too, so that no logit is negative, as HtFLlib does in HtC heads.
    """
    check_head(name)
    head = HEADS[name](feature_dim, num_classes)
    return nn.Sequential(head, nn.ReLU()) if final_relu else head
