"""FedProx (Li et al., MLSys 2020): FedAvg whose clients stay near the model that they received.

A round: the client receives w_t, minimises CE + (mu/2) |w - w_t|^2, Eq. (2), over the learnable parameters, and sends
its model; the server averages. mu = 0 is FedAvg, to the bit.

Travels: as FedAvg. The paper also lets stragglers do fewer local steps; here, as in all public comparisons, everyone
does E epochs. Register entries: D5.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedsaf.core.types import StepView
from fedsaf.federation.method import Method
from fedsaf.losses.objective import objective
from fedsaf.methods.auxiliary_model import RECEIVED, ReceivedModel
from fedsaf.methods.averaging import averaged
from fedsaf.methods.fedavg import REQUIRES


class Proximal:
    """Half the squared distance of the learnable parameters from the received ones: h of Eq. (2), per mu.

    With weight mu its gradient is mu (w - w_t). It is zero, value and gradient, at the first step of a round.
    """

    def __call__(self, view: StepView) -> Tensor:
        """Return a scalar >= 0, in float32 or wider; batch-normalisation statistics do not enter.

        Raises:
            KeyError: the callback that keeps the received model is missing.
        """
        start = view.scratch[RECEIVED].model.parameters()
        pairs = zip(view.model.parameters(), start, strict=True)
        squares = [(w.float() - w_t.float()).square().sum() for w, w_t in pairs if w.requires_grad]
        return 0.5 * torch.stack(squares).sum()


def fedprox(name: str, mu: float, weighting: str, buffers: str) -> Method:
    """Return the method.

    Args:
        name: as it appears in records.
        mu: >= 0, weight of the proximal term.
        weighting: ``samples`` or ``uniform``, of the mean.
        buffers: ``average`` or ``ignore`` batch-normalisation statistics (D5).
    """
    return Method(
        name,
        objective(proximal=(Proximal(), mu)),
        REQUIRES["all"],
        callbacks=[ReceivedModel()],
        channels={"parameters": averaged("all", weighting, buffers)},
    )
