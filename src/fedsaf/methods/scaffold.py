"""SCAFFOLD (Karimireddy et al., ICML 2020), Algorithm 1, option II: control variates correct the drift of local steps.

The server holds the model w and a control c, client i holds c_i in its memory, all controls zero at first and over the
learnable parameters alone: batch-normalisation statistics are averaged with the model and never controlled.

A round: the client receives w and c; each local step is y <- y - eta (g - c_i + c), Eq. (3); after K steps
c_i' = c_i - c + (w - y) / (K eta), Eq. (4). It sends y and c_i' - c_i. The server:
w <- w + eta_g mean(y_i - w) and c <- c + (1/N) sum over participants of (c_i' - c_i), Eq. (5).

Travels: model and control, both ways: twice what FedAvg sends. Register entries: D5.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim import Optimizer

from fedsaf.core.checks import positive
from fedsaf.core.contracts import Aggregator, Batches, Callback, Client, ClientChannel
from fedsaf.core.types import Message, ServerContext, Upload
from fedsaf.federation.method import Channel, Method
from fedsaf.losses.objective import objective
from fedsaf.methods.auxiliary_model import RECEIVED, ReceivedModel
from fedsaf.methods.averaging import ParameterChannel, ParameterMean, travelling
from fedsaf.methods.fedavg import REQUIRES

CONTROLS = "controls"
PREFIX = "control."
"""Where c_i stands in a client's memory, before the name of the parameter."""
SHIFT, STEPS, RATE = "controls.shift", "controls.steps", "controls.lr"
"""Notes of one round: c - c_i, how many steps were made, and eta."""


class ControlChannel(ClientChannel):
    """c down, c_i' - c_i up; `ControlCorrection` makes what is sent."""

    def receive(self, client: Client, message: Message | None) -> None:
        """Put c where the correction finds it."""
        if message is not None:
            client.received[CONTROLS] = {name: tensor.to(client.device) for name, tensor in message.items()}

    def send(self, client: Client, batches: Batches) -> Message:
        """Return c_i' - c_i by parameter name; zeros from a client that made no step."""
        return {name: tensor.detach().cpu() for name, tensor in client.scratch.pop(CONTROLS).items()}


class ControlCorrection(Callback):
    """Corrects every local step by c - c_i, Eq. (3), and makes the new c_i after the last, Eq. (4).

    y <- y - eta (c - c_i) follows each optimiser step: with plain SGD that is Eq. (3); momentum sees the gradient
    alone, as in public code. A client that made no step keeps c_i. `ReceivedModel` must stand before it.
    """

    def on_train_start(self, client: Client, batches: Batches) -> None:
        """Note c - c_i, which stays the same for the whole round."""
        own, server = own_controls(client), client.received[CONTROLS]
        client.scratch[SHIFT] = {name: server[name] - own[name] for name in own}
        client.scratch[STEPS] = 0

    @torch.no_grad()
    def on_train_batch_end(self, client: Client, optimizer: Optimizer) -> None:
        """Add the correction to every learnable parameter of the model."""
        lr = optimizer.param_groups[0]["lr"]
        for name, parameter in client.model.named_parameters():
            if parameter.requires_grad:
                parameter.sub_(client.scratch[SHIFT][name], alpha=lr)
        client.scratch[STEPS] += 1
        client.scratch[RATE] = lr

    @torch.no_grad()
    def on_train_end(self, client: Client, batches: Batches) -> None:
        """Put c_i' into the memory and c_i' - c_i where the channel finds it."""
        steps = client.scratch[STEPS]
        start = dict(client.scratch[RECEIVED].model.named_parameters())
        change = {}
        for name, own in own_controls(client).items():
            change[name] = torch.zeros_like(own)
            if steps:
                moved = start[name] - client.model.get_parameter(name)
                change[name] = moved / (steps * client.scratch[RATE]) - client.received[CONTROLS][name]
            client.memory[PREFIX + name] = own + change[name]
        client.scratch[CONTROLS] = change


def own_controls(client: Client) -> dict[str, Tensor]:
    """Return c_i by parameter name; zeros for a client that never took part.

    Raises:
        KeyError: some of the parameters have no control although others do.
    """
    names = dict(client.model.named_parameters())
    if not any(name.startswith(PREFIX) for name in client.memory):
        return {name: torch.zeros_like(parameter) for name, parameter in names.items()}
    return {name: client.memory[PREFIX + name] for name in names}


class ServerStep(ParameterMean):
    """The server's model: w <- w + eta_g (mean over participants of y_i - w), Eq. (5).

    Clients send y_i and not y_i - w, which is as many bytes and, for eta_g = 1, gives the mean to the bit.
    Batch-normalisation statistics are replaced by their mean whatever eta_g is.

    Args:
        weighting: ``uniform`` is the paper's mean, ``samples`` that of public code.
        buffers: as `ParameterMean`.
        lr: eta_g, > 0.
    """

    def __init__(self, weighting: str, buffers: str, lr: float) -> None:
        super().__init__("all", weighting, buffers)
        positive(server_lr=lr)
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


def scaffold(name: str, server_lr: float, weighting: str, buffers: str) -> Method:
    """Return the method.

    Args:
        name: as it appears in records.
        server_lr: eta_g, > 0.
        weighting: ``uniform`` (the paper's mean over participants) or ``samples`` (public code).
        buffers: ``average`` or ``ignore`` batch-normalisation statistics (D5).
    """
    return Method(
        name,
        objective(),
        REQUIRES["all"],
        callbacks=[ReceivedModel(), ControlCorrection()],
        channels={
            "parameters": Channel(ParameterChannel("all", buffers), ServerStep(weighting, buffers, server_lr)),
            CONTROLS: Channel(ControlChannel(), ControlMean()),
        },
    )
