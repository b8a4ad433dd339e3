"""One client: its model, its objective, and what it remembers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lightning import LightningModule
from torch import Tensor, nn
from torch.optim import Optimizer

from fedsaf.core.contracts import ForwardRule, Outputs
from fedsaf.core.types import StepView
from fedsaf.losses.objective import Objective

MEMORY = "memory."


class FederatedClient(LightningModule):
    """A LightningModule around a split model (timm backbone and head) and a training objective.

    The module is a workbench: clients of one architecture take turns on it, each bringing its own state (`bind`,
    `export_state`). It works in a plain Lightning ``Trainer`` as well. The federated loop never passes it to
    ``fabric.setup``, which would average gradients over ranks that hold different clients.

    Args:
        model: maps (B, channels, s, s) to features (B, d) and logits (B, C).
        objective: weighted sum of terms.
        optimizer: builds an optimiser from parameter groups; called anew every round.
        num_classes: C.
        feature_dim: d.
        rounds: T, for terms whose weight depends on the round.
        auxiliary: auxiliary models trained beside the model, by name.
        learning_rates: of auxiliary that do not share the client's, by name.
        forward_rule: how the outputs are computed; None for the model alone.

    Attributes:
        received: what the channels unpacked this round, by channel.
        memory: tensors kept from one participation to the next, by name; part of the state.
        scratch: channels' notes during one round; never kept.
        round: index t of the current round.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        optimizer: Callable[[list[dict[str, Any]]], Optimizer],
        num_classes: int,
        feature_dim: int,
        rounds: int,
        auxiliary: Mapping[str, nn.Module],
        learning_rates: Mapping[str, float],
        forward_rule: ForwardRule | None,
    ) -> None:
        super().__init__()
        self.model = model
        self.auxiliary = nn.ModuleDict(auxiliary)
        self.objective = objective
        self.optimizer = optimizer
        self.learning_rates = dict(learning_rates)
        self.forward_rule = forward_rule
        self.num_classes, self.feature_dim, self.rounds = num_classes, feature_dim, rounds
        self.round = 0
        self.received: dict[str, Any] = {}
        self.memory: dict[str, Tensor] = {}
        self.scratch: dict[str, Any] = {}

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return features (B, d) and logits (B, C)."""
        outputs = self.outputs(x)
        return outputs.z, outputs.logits

    def outputs(self, x: Tensor) -> Outputs:
        """Return features, logits and what auxiliary models that read the same batch put out."""
        return Outputs(*self.model(x)) if self.forward_rule is None else self.forward_rule(self, x)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> dict[str, Any]:
        """Return the ``loss`` of one batch, the ``values`` of its terms and the ``view`` they saw."""
        x, y = batch
        outputs = self.outputs(x)
        view = StepView(
            x=x,
            y=y,
            z=outputs.z,
            logits=outputs.logits,
            round=self.round,
            rounds=self.rounds,
            received=self.received,
            model=self.model,
            auxiliary=self.auxiliary,
            memory=self.memory,
            scratch=self.scratch,
            outputs=outputs.auxiliary,
        )
        loss, values = self.objective(view)
        return {"loss": loss, "values": values, "view": view}

    def configure_optimizers(self) -> Optimizer:
        """Return a fresh optimiser over every parameter that learns, of model and auxiliary."""
        groups = [{"params": list(self.model.parameters())}]
        for name, module in self.auxiliary.items():
            rate = {"lr": self.learning_rates[name]} if name in self.learning_rates else {}
            groups.append({"params": list(module.parameters()), **rate})
        groups = [group | {"params": [p for p in group["params"] if p.requires_grad]} for group in groups]
        return self.optimizer([group for group in groups if group["params"]])

    def bind(self, state: Mapping[str, Tensor], copy: bool) -> None:
        """Take the place of the client whose state this is.

        Args:
            state: an `export_state`; every tensor of the module and the memory must be there.
            copy: whether to work on copies, leaving ``state`` as it is. Without, a state that lies on this device is
                used in place, which costs nothing and is right for evaluation.

        Raises:
            RuntimeError: if a tensor is missing, unknown or of another shape.
        """
        moved = {name: tensor.to(self.device, copy=copy) for name, tensor in state.items()}
        self.memory = {name.removeprefix(MEMORY): t for name, t in moved.items() if name.startswith(MEMORY)}
        self.load_state_dict({n: t for n, t in moved.items() if not n.startswith(MEMORY)}, strict=True, assign=True)
        self.received, self.scratch = {}, {}

    def export_state(self) -> dict[str, Tensor]:
        """Return everything this client must find again at its next participation, as CPU tensors."""
        state = {name: tensor.detach().cpu() for name, tensor in self.state_dict().items()}
        return state | {f"{MEMORY}{name}": tensor.detach().cpu() for name, tensor in self.memory.items()}
