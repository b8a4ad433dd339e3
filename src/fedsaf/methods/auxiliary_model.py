"""What methods share that keep a second network at a client: the small shared model, and models that only look on.

FML, FedKD and FedMRL train a small model beside the client's own; FML and FedKD let the two teach each other. FedProx,
SCAFFOLD and MOON compare with a reference model that never learns.
p are the probabilities of the client's model, q those of the auxiliary. Dimension letters: B batch, d feature
dimension, C classes.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from fedsaf.core.checks import one_of, positive
from fedsaf.core.contracts import AuxiliaryModel, Batches, Callback, Client, Outputs
from fedsaf.core.types import StepView
from fedsaf.losses.distillation import REDUCTIONS, divergence
from fedsaf.models.context import ModelContext
from fedsaf.models.heads import build_head
from fedsaf.models.split import SplitModel

RECEIVED = "received_model"
"""Where `ReceivedModel` puts its copy in a client's ``scratch``."""


class SmallModel(AuxiliaryModel):
    """Builder of a small split model that all clients share: a trunk of the group with a linear head of its own.

    Its trunk is brought to its feature dimension by pooling, as the papers' are, whatever the group does.

    Args:
        architecture: a name that the clients' group knows, or None for its own choice: the first, in HtC groups CNN-4.
        feature_dim: of this model, at most the clients' d; None for that.
        lr: learning rate of its parameters; None for the client's.

    Raises:
        ValueError: a feature dimension below one.
    """

    shared = True

    def __init__(self, architecture: str | None, feature_dim: int | None, lr: float | None) -> None:
        if feature_dim is not None and feature_dim < 1:
            raise ValueError(f"feature_dim of the auxiliary model is {feature_dim}; expected at least 1, or null")
        self.architecture, self.feature_dim, self.lr = architecture, feature_dim, lr

    def build(self, context: ModelContext, client: int) -> SplitModel:
        """Return the model, the same for every client but for the draw.

        Raises:
            ValueError: an architecture that the group does not know, or that cannot read the clients' inputs.
        """
        group, inputs = context.group, context.inputs
        name = self.architecture or group.auxiliary
        group.find_architecture(name)
        group.check_architecture(name, inputs)
        trunk = group.build_trunk(name, inputs)
        feature_dim = min(self.feature_dim or group.feature_dim, group.feature_dim)
        head = build_head("linear", feature_dim, context.num_classes, False)
        return SplitModel(trunk, head, feature_dim, feature_end=group.feature_end(name))


class WithAuxiliary:
    """Forward rule: the client's own model answers, and in training its auxiliary model reads the same batch once.

    Terms find its features and logits in the ``outputs`` of the step under its name. In evaluation it is not asked.

    Args:
        auxiliary: its name.
    """

    def __init__(self, auxiliary: str) -> None:
        self.auxiliary = auxiliary

    def __call__(self, client: Client, x: Tensor) -> Outputs:
        """Return features (B, d) and logits (B, C) of the client's own model, in training those of the other too."""
        others = {self.auxiliary: client.auxiliary[self.auxiliary](x)} if client.training else {}
        return Outputs(*client.model(x), others)


class AuxiliaryCrossEntropy:
    """Mean cross-entropy of the auxiliary model's logits.

    Args:
        auxiliary: its name.
    """

    def __init__(self, auxiliary: str) -> None:
        self.auxiliary = auxiliary

    def __call__(self, view: StepView) -> Tensor:
        """Return a scalar >= 0."""
        return F.cross_entropy(view.outputs[self.auxiliary][1].float(), view.y)


class Distillation:
    """One direction of a mutual distillation: KL(q || p) trains the model, KL(p || q) the auxiliary.

    Args:
        auxiliary: its name.
        student: ``model`` or ``auxiliary``.
        kl_reduction: see `fedsaf.losses.distillation.divergence` (register entry D15).
        detach_teacher: whether the teacher is a constant (D15).
    """

    def __init__(self, auxiliary: str, student: str, kl_reduction: str, detach_teacher: bool) -> None:
        self.auxiliary, self.student = auxiliary, one_of("student", student, ("model", "auxiliary"))
        self.kl_reduction, self.detach_teacher = one_of("kl_reduction", kl_reduction, REDUCTIONS), detach_teacher

    def __call__(self, view: StepView) -> Tensor:
        """Return a scalar >= 0."""
        student, teacher = view.logits, view.outputs[self.auxiliary][1]
        if self.student == "auxiliary":
            student, teacher = teacher, student
        return divergence(student, teacher.detach() if self.detach_teacher else teacher, self.kl_reduction)


class GradientClipping(Callback):
    """Shortens the gradient of the client's model, and that of each auxiliary model, to a largest Euclidean length.

    One length for each network, as FML, FedKD, FedL2G and FedKTL prescribe.

    Args:
        max_norm: > 0.
    """

    def __init__(self, max_norm: float) -> None:
        positive(max_norm=max_norm)
        self.max_norm = max_norm

    def on_before_optimizer_step(self, client: Client, optimizer: Optimizer) -> None:
        """Clip; a gradient that is NaN or Inf stays so, for the loss check to report."""
        for network in (client.model, *client.auxiliary.values()):
            torch.nn.utils.clip_grad_norm_(network.parameters(), self.max_norm)


class Frozen(nn.Module):
    """A model without gradient that stays in evaluation mode, whatever mode its owner is put into.

    Args:
        model: taken over, not copied.

    Attributes:
        taken: () bool, whether the weights were ever taken over from a trained model by `take`.
    """

    taken: Tensor

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model.requires_grad_(False)
        self.register_buffer("taken", torch.tensor(False))
        self.eval()

    @classmethod
    def copy_of(cls, model: nn.Module) -> Frozen:
        """Return a frozen copy; ``model`` stays as it is."""
        return cls(copy.deepcopy(model))

    def train(self, mode: bool = True) -> Frozen:
        """Stay in evaluation mode."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map inputs to z (B, d) and logits (B, C), without graph."""
        return self.model(x)

    @torch.no_grad()
    def take(self, model: nn.Module) -> None:
        """Take over the parameters and buffers of ``model`` by value."""
        self.model.load_state_dict(model.state_dict())
        self.taken.fill_(True)


class ReceivedModel(Callback):
    """Keeps the model that a client starts its round from, w_t of FedProx, SCAFFOLD and MOON, as a `Frozen` copy."""

    def on_train_start(self, client: Client, batches: Batches) -> None:
        """Copy the model before the first step."""
        client.scratch[RECEIVED] = Frozen.copy_of(client.model)
