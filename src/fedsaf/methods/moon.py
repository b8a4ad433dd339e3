"""MOON (Li et al., CVPR 2021): FedAvg whose clients contrast their representation with two frozen models'.

A round: the client receives the global model and minimises CE + mu l_con, Eq. (3)-(4): l_con pulls z towards the
received model's and away from that of its own model at the end of its last participation, which it keeps. It sends its
model; the server averages.

z is what the classifier reads: the output of the projection head for groups that have one (the paper, moon_cnn), of the
encoder for the others. Travels: as FedAvg. Register entries: D5, D19. Dimension letters: B batch, d feature dimension.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsaf.core.checks import one_of, positive
from fedsaf.core.contracts import AuxiliaryModel, Batches, Callback, Client
from fedsaf.core.types import StepView
from fedsaf.federation.method import Method
from fedsaf.losses.coordinate import COSINE_FLOOR
from fedsaf.losses.numerics import checked, full_precision, unit_rows
from fedsaf.losses.objective import objective
from fedsaf.methods.auxiliary_model import RECEIVED, Frozen, ReceivedModel
from fedsaf.methods.averaging import averaged
from fedsaf.methods.fedavg import REQUIRES
from fedsaf.models.context import ModelContext

PREVIOUS = "previous_model"


class FrozenTwin(AuxiliaryModel):
    """Builder of a frozen network of the client's own architecture, independently drawn."""

    def build(self, context: ModelContext, client: int) -> nn.Module:
        """Return the twin with weights from the ambient generator."""
        return Frozen(context.group.build(client, context.num_classes, context.inputs))


class PreviousModel(Callback):
    """Keeps the model that a client ends its round with until its next participation.

    It lies in the auxiliary model ``previous_model``, and so in the client's state and checkpoint.

    Args:
        first: what stands there at the first participation: ``independent``, the twin's own random weights, or
            ``global``, the received model, with which the contrast is constant (register entry D19).
    """

    def __init__(self, first: str) -> None:
        self.first = one_of("first", first, ("independent", "global"))

    def on_train_start(self, client: Client, batches: Batches) -> None:
        """At a first participation, put the received model there if that is asked for."""
        previous = client.auxiliary[PREVIOUS]
        if self.first == "global" and not previous.taken:
            previous.take(client.model)

    def on_train_end(self, client: Client, batches: Batches) -> None:
        """Keep the trained model."""
        client.auxiliary[PREVIOUS].take(client.model)


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
    """`model_contrast` of a step.

    Args:
        temperature: tau > 0.
    """

    def __init__(self, temperature: float) -> None:
        positive(temperature=temperature)
        self.temperature = temperature

    def __call__(self, view: StepView) -> Tensor:
        """Return a scalar > 0; KeyError if the callback that keeps the received model is missing."""
        z_global, _ = view.scratch[RECEIVED](view.x)
        z_previous, _ = view.auxiliary[PREVIOUS](view.x)
        return model_contrast(view.z, z_global, z_previous, self.temperature)


def moon(name: str, mu: float, temperature: float, first: str, weighting: str, buffers: str) -> Method:
    """Return the method.

    Args:
        name: as it appears in records.
        mu: >= 0, weight of the contrast.
        temperature: tau > 0.
        first: ``independent`` or ``global``: the previous model of a first participation (D19).
        weighting: ``samples`` or ``uniform``, of the mean.
        buffers: ``average`` or ``ignore`` batch-normalisation statistics (D5).
    """
    return Method(
        name,
        objective(model_contrast=(ModelContrast(temperature), mu)),
        REQUIRES["all"],
        auxiliary={PREVIOUS: FrozenTwin()},
        callbacks=[ReceivedModel(), PreviousModel(first)],
        channels={"parameters": averaged("all", weighting, buffers)},
    )
