"""What methods share that average parameters: a part of every client's model up, its mean over clients down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedsaf.core.checks import one_of
from fedsaf.core.contracts import Aggregator, Batches, Client, ClientChannel
from fedsaf.core.types import Message, ServerContext, Upload
from fedsaf.federation.method import Channel
from fedsaf.federation.scopes import read_scope, write_scope

BUFFERS = ("average", "ignore")
WEIGHTINGS = ("samples", "uniform")


def averaged(scope: str, weighting: str, buffers: str) -> Channel:
    """Return the channel that averages a part of the clients, see `ParameterChannel` and `ParameterMean`."""
    return Channel(ParameterChannel(scope, buffers), ParameterMean(scope, weighting, buffers))


class ParameterChannel(ClientChannel):
    """Parameters and buffers of a scope up after training, their global mean down before it.

    Args:
        scope: see `fedsaf.federation.scopes.scope_module`.
        buffers: ``average`` sends batch-normalisation statistics too, ``ignore`` keeps them at the client (register
            entry D5). Step counters never travel.
    """

    def __init__(self, scope: str, buffers: str) -> None:
        self.scope, self.buffers = scope, one_of("bn_buffers", buffers, BUFFERS)

    def receive(self, client: Client, message: Message | None) -> None:
        """Replace the scope's tensors by those of the message."""
        if message is not None:
            write_scope(client, self.scope, message)

    def send(self, client: Client, batches: Batches) -> Message:
        """Return the scope's parameters and, if they are averaged, its running statistics."""
        return travelling(read_scope(client, self.scope), self.buffers)


class ParameterMean(Aggregator):
    """Mean of the uploaded parameters over the participants, FedAvg (McMahan et al., 2017), Algorithm 1.

    Args:
        scope: which part of a client's model, for the initial state.
        weighting: see `mean_of_messages`.
        buffers: as the client's.
    """

    def __init__(self, scope: str, weighting: str, buffers: str) -> None:
        self.scope, self.weighting, self.buffers = scope, one_of("weighting", weighting, WEIGHTINGS), buffers

    def prepare(self, context: ServerContext) -> None:
        """Start from the server's own draw, which all clients receive before their first round."""
        self._values = travelling(context.initial(self.scope), self.buffers)

    def update(self, uploads: Sequence[Upload], round: int) -> dict[str, float]:
        """Average, in float64 and in client order; without uploads the parameters stay."""
        if uploads:
            self._values = mean_of_messages(
                [u.message for u in uploads], [u.num_samples for u in uploads], self.weighting
            )
        return {}

    def broadcast(self) -> Message | None:
        """Return the mean."""
        return dict(self._values)

    def state(self) -> dict[str, Tensor]:
        """Return the live state."""
        return self._values


class InitialParameterChannel(ParameterChannel):
    """The server's parameters down; nothing up.

    Args:
        scope: as `ParameterChannel`.
        keep: True: they are where a client starts, and what it makes of them is its own. False: they replace what it
            has made of them at the start of each round.
    """

    def __init__(self, scope: str, keep: bool) -> None:
        super().__init__(scope, "average")
        self.keep, self.note = keep, f"{scope}.received"

    def receive(self, client: Client, message: Message | None) -> None:
        """Replace the scope's tensors, unless the client keeps its own."""
        if not (self.keep and self.note in client.memory):
            super().receive(client, message)

    def on_train_start(self, client: Client, batches: Batches) -> None:
        """Remember that this client has started."""
        client.memory[self.note] = torch.ones(1, dtype=torch.bool)


class FixedParameters(Aggregator):
    """The server's own draw of a scope, the same in every round; it travels once, ahead of the rounds.

    Args:
        scope: which part of a client.
    """

    needs_uploads = False

    def __init__(self, scope: str) -> None:
        self.scope = scope

    def prepare(self, context: ServerContext) -> None:
        """Take the draw."""
        self._values = travelling(context.initial(self.scope), "average")

    def broadcast(self) -> Message | None:
        """Return the parameters."""
        return dict(self._values)

    def setup_message(self) -> Message | None:
        """Return the parameters."""
        return self.broadcast()

    def state(self) -> dict[str, Tensor]:
        """Return the live state."""
        return self._values


def travelling(tensors: Mapping[str, Tensor], buffers: str) -> Message:
    """Return what of a scope travels: never step counters, running statistics only with ``buffers="average"``."""
    kept = {n: t for n, t in tensors.items() if t.is_floating_point()}
    if buffers == "ignore":
        kept = {n: t for n, t in kept.items() if not n.endswith(("running_mean", "running_var"))}
    return kept


def mean_of_messages(messages: Sequence[Message], num_samples: Sequence[int], weighting: str) -> Message:
    """Return the mean of messages with equal names, accumulated in float64.

    One message is returned as it is, to the bit. Clients that are all without samples count the same.

    Args:
        messages: at least one.
        num_samples: n_i of each.
        weighting: ``samples``, n_i / sum of n_i over the messages; or ``uniform``.
    """
    if len(messages) == 1:
        return {name: tensor.clone() for name, tensor in messages[0].items()}
    weights = num_samples if weighting == "samples" and any(num_samples) else [1] * len(messages)
    shares = [weight / sum(weights) for weight in weights]
    mean = {}
    for name, first in messages[0].items():
        acc = torch.zeros_like(first, dtype=torch.float64)
        for message, share in zip(messages, shares, strict=True):
            acc.add_(message[name].double(), alpha=share)
        mean[name] = acc.to(first.dtype)
    return mean
