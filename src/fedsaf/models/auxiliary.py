"""A second network beside the client's own: the shared small model of FML, FedKD and FedMRL, and FedKD's feature map.

Dimension letters: B batch, d feature dimension, C classes.
"""

from __future__ import annotations

from torch import Tensor, nn

from fedsaf.core.contracts import AuxiliaryModel, Client, Outputs
from fedsaf.models.context import ModelContext
from fedsaf.models.heads import build_head
from fedsaf.models.split import SplitModel


class SmallModel(AuxiliaryModel):
    """Builder of a small split model that all clients share: a trunk of the group with a linear head of its own.

    Its trunk is brought to its feature dimension by pooling, as the papers' are, whatever the group does.

    Attributes:
        shared: True.
    """

    shared = True

    def __init__(self, architecture: str | None, feature_dim: int | None, lr: float | None) -> None:
        """Choose the network.

        Args:
            architecture: a name that the clients' group knows, or None for its own choice: the first, in HtC groups
                CNN-4.
            feature_dim: of this model, at most the clients' d; None for that.
            lr: learning rate of its parameters; None for the client's.

        Raises:
            ValueError: a feature dimension below one.
        """
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


class HiddenMap(AuxiliaryModel):
    """Builder of FedKD's W_h, a private d x d matrix that takes the mentee's features to the mentor's.

    Attributes:
        shared: False.
        lr: None.
    """

    shared = False
    lr = None

    def build(self, context: ModelContext, client: int) -> nn.Module:
        """Return a linear layer without bias: d^2 parameters."""
        return nn.Linear(context.group.feature_dim, context.group.feature_dim, bias=False)


class WithAuxiliary:
    """Answer rule: the client's own model answers, and in training its auxiliary reads the same batch once.

    The terms of a mutual distillation find its features and logits in the ``outputs`` of the step under its name. In
    evaluation it is not asked.

    Args:
        auxiliary: its name.
    """

    def __init__(self, auxiliary: str) -> None:
        self.auxiliary = auxiliary

    def __call__(self, client: Client, x: Tensor) -> Outputs:
        """Return features (B, d) and logits (B, C) of the client's own model, in training those of the other too."""
        others = {self.auxiliary: client.auxiliary[self.auxiliary](x)} if client.training else {}
        return Outputs(*client.model(x), others)
