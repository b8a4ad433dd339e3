"""An answer of clients whose representation lies on the unit sphere.

Dimension letters: B batch, d feature dimension, C classes.
"""

from __future__ import annotations

from torch import Tensor

from fedsaf.core.contracts import Client, Outputs
from fedsaf.losses.coordinate import COSINE_FLOOR
from fedsaf.losses.numerics import unit_rows


class ScaledFeatures:
    """Features of a client's own model, as they are or scaled to length 1 before the classifier reads them.

    Args:
        unit: whether to scale. FedProc's public code does, its paper does not (register entry D20).
    """

    def __init__(self, unit: bool) -> None:
        self.unit = unit

    def __call__(self, client: Client, x: Tensor) -> Outputs:
        """Return z (B, d), a zero row staying zero, and logits (B, C)."""
        if not self.unit:
            return Outputs(*client.model(x))
        z = unit_rows(client.model.features(x), COSINE_FLOOR)
        return Outputs(z, client.model.head(z))
