"""The model-contrastive term of MOON.

Dimension letters: B batch, d feature dimension.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fedsaf.core.types import StepView
from fedsaf.losses.coordinate import COSINE_FLOOR
from fedsaf.losses.numerics import checked, full_precision, unit_rows


@full_precision
def model_contrast(z: Tensor, z_global: Tensor, z_previous: Tensor, temperature: float) -> Tensor:
    """Eq. (3) of MOON: cross-entropy of [cos(z, z_global), cos(z, z_previous)] / temperature with target 0.

    Args:
        z: (B, d) representations of the model in training.
        z_global: (B, d) of the received global model; no gradient.
        z_previous: (B, d) of the client's own model of its last participation; no gradient.
        temperature: > 0.

    Returns:
        Scalar > 0; log 2 with cancelling gradients if the two are equal. A zero row has cosine 0 with everything.

    Raises:
        FloatingPointError: NaN or Inf in the inputs.

    >>> rows = torch.tensor([[1.0, 0.0]])
    >>> model_contrast(rows, rows, -rows, 0.5)  # log(1 + exp(-4))
    tensor(0.0181)
    """
    own = unit_rows(z, COSINE_FLOOR)
    others = (unit_rows(other.detach().to(z.dtype), COSINE_FLOOR) for other in (z_global, z_previous))
    logits = torch.stack([(own * other).sum(dim=1) for other in others], dim=1) / temperature
    target = torch.zeros(len(z), dtype=torch.int64, device=z.device)
    return checked("model_contrast", F.cross_entropy(logits, target))


class ModelContrast:
    """Pulls z towards the received global model's and away from the client's own of its last participation.

    z is what the classifier reads: the output of the projection head for groups that have one (the paper), of the
    encoder for the others.

    Args:
        received: name in ``scratch`` of the received model, see `fedsaf.exchange.snapshots.ReceivedModel`.
        previous: name of the auxiliary that keeps the previous model, see `fedsaf.models.frozen.FrozenTwin`.
        temperature: > 0.

    Raises:
        ValueError: a temperature that is not positive.
    """

    def __init__(self, received: str, previous: str, temperature: float) -> None:
        if not temperature > 0:
            raise ValueError(f"temperature is {temperature}; expected a number > 0")
        self.received, self.previous, self.temperature = received, previous, temperature

    def __call__(self, view: StepView) -> Tensor:
        """Return a scalar > 0.

        Raises:
            KeyError: the callback or the auxiliary that keeps one of the two models is missing.
        """
        z_global, _ = view.scratch[self.received](view.x)
        z_previous, _ = view.auxiliary[self.previous](view.x)
        return model_contrast(view.z, z_global, z_previous, self.temperature)
