"""The contracts between the engine and a method: what a method may be made of, and what each part may see.

Each base class has the empty parts, so that a method writes only what it does. All of them know tensors and one client
or the uploads of one round; none knows ranks, checkpoints or configuration.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fedsaf.core.types import Message, ServerContext, StepView, Upload

Batches: TypeAlias = Iterable[tuple[Tensor, Tensor]]
"""One pass over a client's training part in stored order, as (x, y) batches."""


class Outputs(NamedTuple):
    """What one forward pass gives: z (B, d), logits (B, C), and both of auxiliary models that read the same batch."""

    z: Tensor
    logits: Tensor
    auxiliary: Mapping[str, tuple[Tensor, Tensor]] = {}  # noqa: RUF012  (never written)


class Client(Protocol):
    """The client at work, as terms, channels, callbacks and predictors see it.

    Attributes:
        model: its own network, x -> z -> logits: ``backbone`` and ``head`` (f and h of the papers), and ``features``.
        auxiliary: a `torch.nn.ModuleDict` of networks trained beside it.
        received: what its channels unpacked at the start of the round, by channel.
        memory: tensors it finds again at its next participation, by name; in every checkpoint.
        scratch: notes of this round; never kept.
        round: index t of the current round, from 0.
        rounds: T.
        num_classes: C.
        feature_dim: d.
    """

    model: Any
    auxiliary: Any
    received: dict[str, Any]
    memory: dict[str, Tensor]
    scratch: dict[str, Any]
    round: int
    rounds: int
    num_classes: int
    feature_dim: int
    training: bool

    @property
    def device(self) -> torch.device:
        """Where it works."""

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return z (B, d) and logits (B, C), by which it is scored."""

    def objective(self, step: StepView) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the weighted sum of its loss terms, and the value of each."""

    def train(self, mode: bool = True) -> Any:
        """As of `torch.nn.Module`, like the two below."""

    def eval(self) -> Any: ...  # noqa: D102

    def modules(self) -> Iterator[nn.Module]: ...  # noqa: D102


Term: TypeAlias = Callable[[StepView], Tensor]
"""A loss term: the scalar value for one step.

A constant without graph (``requires_grad`` False) says that there was nothing to act on, and is not added.
"""

ForwardRule: TypeAlias = Callable[[Client, Tensor], Outputs]
"""A client's outputs for a batch, in training and evaluation, where its own model is not all (FML, FedKD, FedMRL)."""

Predictor: TypeAlias = Callable[[Client, Tensor, Tensor], Tensor]
"""A prediction rule: from z (B, d) and logits (B, C) the class of each row, (B,) int64; -1 where there is no answer."""


class ClientChannel:
    """Client half of a channel: what a client makes of a message, and what it sends. It keeps nothing in itself."""

    def receive(self, client: Client, message: Message | None) -> None:
        """Unpack what the server sent, before local training and before evaluation; None if it sent nothing."""

    def on_train_start(self, client: Client, batches: Batches) -> None:
        """Prepare for one round of local training."""

    def on_train_batch_end(self, client: Client, step: StepView, epoch: int, epochs: int) -> None:
        """See one training step after the optimiser's."""

    def send(self, client: Client, batches: Batches) -> Message:
        """Return what this client uploads after local training; by default nothing."""
        return {}


class Aggregator(ABC):
    """Server half of a channel: takes the uploads of a round, keeps a state, and says what is sent next.

    Attributes:
        needs_counts: whether it reads the part ``counts``, the samples behind each row; else that stays at the client.
        needs_uploads: whether it reads uploads at all; else clients neither collect nor send any.
        asks_first: whether all clients upload once before round 0, under the initial broadcast and untrained; `update`
            sees these uploads as round -1.
    """

    needs_counts: bool = False
    needs_uploads: bool = True
    asks_first: bool = False

    def prepare(self, context: ServerContext) -> None:  # noqa: B027  (not every aggregator has a state)
        """Create the initial state; called once."""

    def update(self, uploads: Sequence[Upload], round: int) -> dict[str, float]:
        """Take the uploads of one round, in client order; return what is worth recording."""
        return {}

    @abstractmethod
    def broadcast(self) -> Message | None:
        """Return what every client of the next round receives; None while there is nothing."""

    def setup_message(self) -> Message | None:
        """Return what is sent to every client once, before round 0; then `broadcast` repeats it at no cost."""
        return None

    def state(self) -> dict[str, Tensor]:
        """Return the live tensors on which the next round depends, by name."""
        return {}

    def state_dict(self) -> dict[str, Tensor]:
        """Return a copy of the state."""
        return {name: tensor.detach().clone() for name, tensor in self.state().items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state_dict` returned, bit for bit; ValueError for anything else."""
        restore(type(self).__name__, self.state(), state)


class Callback:
    """Acts at fixed moments of a client's round, in Lightning's words: what is neither a loss nor a message.

    It keeps its notes in the client's ``scratch`` or ``memory``, never in itself: any rank may run it.
    """

    def on_train_start(self, client: Client, batches: Batches) -> None:
        """Run after the channels have received, before the first step."""

    def select_samples(self, client: Client, positions: Tensor) -> Tensor:
        """Return which positions of the training part an epoch uses, in order; asked at the start of each epoch."""
        return positions

    def on_before_optimizer_step(self, client: Client, optimizer: Optimizer) -> None:
        """Run between backward and optimiser step, with gradients in place."""

    def on_train_batch_end(self, client: Client, optimizer: Optimizer) -> None:
        """Run after each optimiser step."""

    def on_train_end(self, client: Client, batches: Batches) -> None:
        """Run after the last step, before the channels send."""


class AuxiliaryModel(ABC):
    """Builder of a network that is trained, or kept, beside a client's own.

    Attributes:
        shared: whether all clients start from the same draw, as models that are averaged must; else each has its own.
        lr: learning rate of its parameters; None for the client's.
    """

    shared: bool = False
    lr: float | None = None

    @abstractmethod
    def build(self, context: Any, client: int) -> nn.Module:
        """Return the network of a client, with weights from the ambient generator, which the caller seeds.

        ``context`` is a `fedsaf.models.groups.ModelContext`: architectures, classes and inputs of the clients.
        """


def restore(owner: str, current: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Copy ``state`` into the tensors of ``current``, bit for bit.

    Raises:
        ValueError: a key is missing or unknown, or a shape or dtype differs.
    """
    if current.keys() != state.keys():
        raise ValueError(f"state of {owner} must have the keys {sorted(current)}, got {sorted(state)}")
    for name, tensor in current.items():
        if (tensor.shape, tensor.dtype) != (state[name].shape, state[name].dtype):
            raise ValueError(
                f"{name} of {owner} must be {tensor.dtype} {tuple(tensor.shape)}, "
                f"got {state[name].dtype} {tuple(state[name].shape)}"
            )
        tensor.detach().copy_(state[name])
