"""SCAFFOLD (Karimireddy et al., ICML 2020): control variates that correct the drift of local steps.

The server holds c, client i holds c_i in its memory, both zero at first and both over the learnable parameters alone:
batch-normalisation statistics are averaged with the model and never controlled.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim import Optimizer

from fedsaf.core.contracts import Aggregator, Batches, Callback, Client, ClientChannel
from fedsaf.core.types import Message, ServerContext, Upload
from fedsaf.exchange.parameters import ParameterMean, travelling

PREFIX = "control."
"""Where c_i stands in a client's memory, before the name of the parameter."""


def own_controls(client: Client) -> dict[str, Tensor]:
    """Return c_i by parameter name; zeros for a client that never took part.

    Raises:
        KeyError: some of the parameters have no control although others do.
    """
    names = dict(client.model.named_parameters())
    if not any(name.startswith(PREFIX) for name in client.memory):
        return {name: torch.zeros_like(parameter) for name, parameter in names.items()}
    return {name: client.memory[PREFIX + name] for name in names}


class ControlCorrection(Callback):
    """Corrects every local step by c - c_i, and makes the new c_i after the last, option II of Algorithm 1.

    y <- y - eta (c - c_i) after each optimiser step: with plain SGD y <- y - eta (g - c_i + c), Eq. (3); momentum sees
    the gradient alone, as in public code. After K steps c_i' = c_i - c + (w_t - y) / (K eta), Eq. (4); a client that
    made no step keeps c_i.

    Args:
        channel: of the controls.
        received: name in ``scratch`` of the received model, see `ReceivedModel`, which must stand before this callback.
    """

    def __init__(self, channel: str, received: str) -> None:
        self.channel, self.received = channel, received

    def on_train_start(self, client: Client, batches: Batches) -> None:
        """Note c - c_i, which stays the same for the whole round."""
        own, server = own_controls(client), client.received[self.channel]
        client.scratch[self._key("shift")] = {name: server[name] - own[name] for name in own}
        client.scratch[self._key("steps")] = 0

    @torch.no_grad()
    def on_train_batch_end(self, client: Client, optimizer: Optimizer) -> None:
        """Add the correction to every learnable parameter of the model."""
        lr = optimizer.param_groups[0]["lr"]
        shift = client.scratch[self._key("shift")]
        for name, parameter in client.model.named_parameters():
            if parameter.requires_grad:
                parameter.sub_(shift[name], alpha=lr)
        client.scratch[self._key("steps")] += 1
        client.scratch[self._key("lr")] = lr

    @torch.no_grad()
    def on_train_end(self, client: Client, batches: Batches) -> None:
        """Put c_i' into the memory and c_i' - c_i where the client finds it."""
        steps = client.scratch[self._key("steps")]
        start = dict(client.scratch[self.received].model.named_parameters())
        change = {}
        for name, own in own_controls(client).items():
            change[name] = torch.zeros_like(own)
            if steps:
                moved = start[name] - client.model.get_parameter(name)
                mean_step = moved / (steps * client.scratch[self._key("lr")])
                change[name] = mean_step - client.received[self.channel][name]
            client.memory[PREFIX + name] = own + change[name]
        client.scratch[self.channel] = change

    def _key(self, note: str) -> str:
        return f"{self.channel}.{note}"


class ControlChannel(ClientChannel):
    """c down, c_i' - c_i up.

    Args:
        channel: its name; the `ControlCorrection` of the same channel makes what is sent.
    """

    def __init__(self, channel: str) -> None:
        self.channel = channel

    def receive(self, client: Client, message: Message | None) -> None:
        """Put c where the correction finds it."""
        if message is not None:
            client.received[self.channel] = {name: tensor.to(client.device) for name, tensor in message.items()}

    def send(self, client: Client, batches: Batches) -> Message:
        """Return c_i' - c_i by parameter name; zeros from a client that made no step."""
        return {name: tensor.detach().cpu() for name, tensor in client.scratch.pop(self.channel).items()}


class ControlMean(Aggregator):
    """The server's control: c <- c + (1/N) sum over participants of (c_i' - c_i), Eq. (5).

    N counts all clients, not only the participants; with full participation c stays the mean of the c_i.
    """

    def prepare(self, context: ServerContext) -> None:
        """Start from zeros, one for each learnable parameter."""
        parameters = travelling(context.initial("all"), buffers="ignore")
        self._values = {name: torch.zeros_like(tensor) for name, tensor in parameters.items()}
        self._num_clients = context.num_clients

    def update(self, uploads: Sequence[Upload], round: int) -> dict[str, float]:
        """Add the changes, in float64 and in client order; return the length of c.

        Raises:
            KeyError: a participant sent no change for some parameter.
        """
        square = 0.0
        for name, value in self._values.items():
            total = value.double()
            for upload in uploads:
                total = total + upload.message[name].double() / self._num_clients
            self._values[name] = total.to(value.dtype)
            square += total.square().sum().item()
        return {"norm": square**0.5}

    def broadcast(self) -> Message | None:
        """Return c."""
        return dict(self._values)

    def state(self) -> dict[str, Tensor]:
        """Return the live state."""
        return self._values


class ServerStep(ParameterMean):
    """The server's model: w <- w + eta_g (mean over participants of y_i - w), Eq. (5).

    Clients send y_i and not y_i - w, which is as many bytes and, for eta_g = 1, gives the mean to the bit.
    Batch-normalisation statistics are replaced by their mean whatever eta_g is.

    Args:
        scope: as `ParameterMean`.
        weighting: ``uniform`` is the paper's mean, ``samples`` that of public code.
        buffers: as `ParameterMean`.
        lr: eta_g, > 0.

    Raises:
        ValueError: another weighting, or a rate that is not positive.
    """

    def __init__(self, scope: str, weighting: str, buffers: str, lr: float) -> None:
        super().__init__(scope, weighting, buffers)
        if not lr > 0:
            raise ValueError(f"lr of the server is {lr}; expected a number > 0")
        self.lr = lr

    def update(self, uploads: Sequence[Upload], round: int) -> dict[str, float]:
        """Step from the former model towards the mean, in float64; without uploads the model stays."""
        former = self._values
        super().update(uploads, round)
        if self.lr != 1:
            for name in travelling(former, buffers="ignore"):
                w, mean = former[name].double(), self._values[name].double()
                self._values[name] = (w + self.lr * (mean - w)).to(former[name].dtype)
        return {}
