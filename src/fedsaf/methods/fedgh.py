"""FedGH (Yi et al., 2023): one head, trained by the server on the clients' prototypes, replaces every local head.

A round: the client takes over the head, trains everything with cross-entropy, and sends its class means P_i^c. The
server runs S_h epochs of SGD on CE(head(P_i^c), c) over the shuffled uploads; its head persists over rounds.

Travels: up |C_i| d numbers, down the head, C (d + 1). Register entries: D14.
Dimension letters: K classes of a message, d feature dimension, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from fedsaf.core.checks import positive
from fedsaf.core.contracts import Aggregator, Client
from fedsaf.core.seeding import torch_generator
from fedsaf.core.types import Message, ServerContext, Upload
from fedsaf.federation.method import Channel, Method
from fedsaf.federation.scopes import write_scope
from fedsaf.losses.objective import objective
from fedsaf.methods.prototype import UNCOUNTED, PrototypeChannel
from fedsaf.prototypes.class_table import uploaded_pairs

LINEAR_HEAD = ("weight", "bias")


def linear_head(tensors: Message) -> Message:
    """Return the tensors of a head if it is one linear layer, the only kind whose logits a server can compute.

    Raises:
        ValueError: any other head.
    """
    if set(tensors) != set(LINEAR_HEAD):
        raise ValueError(
            f"the server works with heads of one linear layer, but this group's has {', '.join(sorted(tensors))}; "
            "take a model group with heads: [linear], such as htfe4"
        )
    return tensors


class MeansForHead(PrototypeChannel):
    """Class means of the representations up, the shared head down."""

    def receive(self, client: Client, message: Message | None) -> None:
        """Replace the client's head by the shared one."""
        if message is not None:
            write_scope(client, "head", message)


class HeadTrainer(Aggregator):
    """A global head, trained by SGD on CE(head(P_i^c), c) over the uploads of each round; it persists over rounds.

    The row of a class that nobody uploads receives only negative gradients.

    Args:
        epochs: S_h, passes over the pairs of a round (register entry D14).
        batch_size: pairs per step; the last step of a pass takes the rest.
        lr: learning rate of plain SGD.
    """

    def __init__(self, epochs: int, batch_size: int, lr: float) -> None:
        positive(server_epochs=epochs, batch_size=batch_size, server_lr=lr)
        self.epochs, self.batch_size, self.lr = epochs, batch_size, lr

    def prepare(self, context: ServerContext) -> None:
        """Start from the server's own draw; ValueError unless the head is one linear layer."""
        self._seed = context.seed
        self._head = linear_head(context.initial("head"))

    @torch.enable_grad()
    def update(self, uploads: Sequence[Upload], round: int) -> dict[str, float]:
        """Train on the pairs of one round.

        Args:
            uploads: messages with ``labels`` (K,) and ``values`` (K, d); without any pair nothing happens.
            round: keys the order of pairs.

        Returns:
            ``loss``, the mean over the pairs of the last epoch; nothing without pairs.

        Raises:
            ValueError: malformed message.
            FloatingPointError: NaN or Inf in the values, or a training that diverges.
        """
        labels, means, _ = uploaded_pairs(uploads, *self._head["weight"].shape)
        if not len(labels):
            return {}
        parameters = [self._head[name].clone().requires_grad_() for name in LINEAR_HEAD]
        optimizer = torch.optim.SGD(parameters, lr=self.lr)
        generator = torch_generator(self._seed, "head_trainer/shuffle", round)
        for _ in range(self.epochs):
            total = 0.0
            for batch in torch.randperm(len(labels), generator=generator).split(self.batch_size):
                loss = F.cross_entropy(F.linear(means[batch], *parameters), labels[batch])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item() * len(batch)
        if not math.isfinite(total):
            raise FloatingPointError(f"the server's head diverged in round {round}: loss {total}")
        self._head = dict(zip(LINEAR_HEAD, (p.detach() for p in parameters), strict=True))
        return {"loss": total / len(labels)}

    def broadcast(self) -> Message | None:
        """Return ``weight`` (C, d) and ``bias`` (C,)."""
        return dict(self._head)

    def state(self) -> dict[str, Tensor]:
        """Return the live state."""
        return self._head


def fedgh(name: str, collection: str, server_epochs: int, batch_size: int, server_lr: float) -> Method:
    """Return the method.

    Args:
        name: as it appears in records.
        collection: which features are averaged, see `PrototypeChannel`.
        server_epochs: S_h (D14).
        batch_size: pairs per step of the server.
        server_lr: of plain SGD on the server.
    """
    channel = Channel(
        MeansForHead("head", collection),
        HeadTrainer(server_epochs, batch_size, server_lr),
        UNCOUNTED,
    )
    return Method(name, objective(), ["one_head"], channels={"head": channel})
