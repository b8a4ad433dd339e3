"""Learned maps from a trunk's width to the feature dimension.

Dimension letters: B batch, W width of a trunk, d feature dimension.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn


def linear(width: int, feature_dim: int) -> nn.Module:
    """One linear layer W -> d, an ablation of pooling: it lifts the rank limit of narrow trunks."""
    return nn.Linear(width, feature_dim)


def projection_head(width: int, feature_dim: int) -> nn.Module:
    """Two layers W -> W -> d with ReLU between: the projection head of MOON and FedProc, whose output is z."""
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(inplace=True), nn.Linear(width, feature_dim))


LEARNED_MAPS: dict[str, Callable[[int, int], nn.Module]] = {"linear": linear, "projection": projection_head}
"""Builders (W, d) -> module by name; the remaining name, ``pool``, has no parameters."""


def check_feature_map(name: str) -> None:
    """Raise a ValueError with the known names if ``name`` is none of them."""
    if name not in ("pool", *LEARNED_MAPS):
        raise ValueError(f"feature_map={name!r}, expected one of: pool, {', '.join(LEARNED_MAPS)}.")


def build_feature_map(name: str, width: int, feature_dim: int) -> nn.Module | None:
    """Return the learned map ``name`` for (B, W) -> (B, d), or None for ``pool``."""
    check_feature_map(name)
    return None if name == "pool" else LEARNED_MAPS[name](width, feature_dim)
