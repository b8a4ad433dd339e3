"""The parameter channel: a part of every client's model travels up, its mean over clients travels down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedsaf.core.contracts import Aggregator, Batches, Client, ClientChannel
from fedsaf.core.types import Message, ServerContext, Upload
from fedsaf.exchange.scopes import read_scope, write_scope


class ParameterChannel(ClientChannel):
    """Parameters and buffers of a scope up after training, their global mean down before it.

    Args:
        scope: see `scope_module`.
        buffers: ``average`` sends batch-normalisation statistics too, ``ignore`` keeps them at the client (register
            entry D5). Step counters never travel.
    """

    def __init__(self, scope: str, buffers: str) -> None:
        if buffers not in ("average", "ignore"):
            raise ValueError(f"bn_buffers is {buffers!r}; choose average or ignore")
        self.scope, self.buffers = scope, buffers

    def receive(self, client: Client, message: Message | None) -> None:
        """Replace the scope's tensors by those of the message."""
        if message is not None:
            write_scope(client, self.scope, message)

    def send(self, client: Client, batches: Batches) -> Message:
        """Return the scope's parameters and, if they are averaged, its running statistics."""
        return travelling(read_scope(client, self.scope), self.buffers)


def travelling(tensors: Mapping[str, Tensor], buffers: str) -> Message:
    """Return what of a scope travels: never step counters, running statistics only with ``buffers="average"``."""
    kept = {n: t for n, t in tensors.items() if t.is_floating_point()}
    if buffers == "ignore":
        kept = {n: t for n, t in kept.items() if not n.endswith(("running_mean", "running_var"))}
    return kept


class ParameterMean(Aggregator):
    """Mean of the uploaded parameters over the participants, FedAvg (McMahan et al., 2017), Algorithm 1.

    Args:
        scope: which part of a client's model, for the initial state.
        weighting: ``samples``: n_i / sum of n_i over the participants; ``uniform``.
        buffers: as the client's.
    """

    def __init__(self, scope: str, weighting: str, buffers: str) -> None:
        if weighting not in ("samples", "uniform"):
            raise ValueError(f"weighting must be 'samples' or 'uniform', got {weighting!r}")
        self.scope, self.weighting, self.buffers = scope, weighting, buffers

    def prepare(self, context: ServerContext) -> None:
        """Start from the server's own draw, which all clients receive before their first round."""
        self._values = travelling(context.initial(self.scope), self.buffers)

    def update(self, uploads: Sequence[Upload], round: int) -> dict[str, float]:
        """Average, in float64 and in client order; without uploads the parameters stay."""
        if uploads:
            weights = [float(u.num_samples) if self.weighting == "samples" else 1.0 for u in uploads]
            self._values = mean_of_messages([u.message for u in uploads], weights)
        return {}

    def broadcast(self) -> Message | None:
        """Return the mean."""
        return dict(self._values)

    def state(self) -> dict[str, Tensor]:
        """Return the live state."""
        return self._values


def mean_of_messages(messages: Sequence[Message], weights: Sequence[float]) -> Message:
    """Return the weighted mean of messages with equal names, accumulated in float64.

    One message is returned as it is, to the bit. All weights zero count the same.
    """
    if len(messages) == 1:
        return {name: tensor.clone() for name, tensor in messages[0].items()}
    total = sum(weights)
    shares = [w / total for w in weights] if total > 0 else [1 / len(weights)] * len(weights)
    mean = {}
    for name, first in messages[0].items():
        acc = torch.zeros_like(first, dtype=torch.float64)
        for message, share in zip(messages, shares, strict=True):
            acc.add_(message[name].double(), alpha=share)
        mean[name] = acc.to(first.dtype)
    return mean
