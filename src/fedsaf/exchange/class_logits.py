"""Class-mean logits in the place of prototypes: the channel of FedDistill (Jeong et al., 2018).

Dimension letters: C classes, K classes of a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fedsaf.core.contracts import Batches, Client
from fedsaf.core.types import Message, ServerContext, StepView, Upload
from fedsaf.exchange.channels import PrototypeChannel
from fedsaf.prototypes.class_means import ClassMeans
from fedsaf.prototypes.class_table import ClassTable
from fedsaf.prototypes.constructors import Mean

NEVER = -1


class LogitChannel(PrototypeChannel):
    """Mean logits by class up, met in training mode during all local epochs; their global means down.

    With ``exclude_self`` a client takes its own part out of what it receives, as the original does: of k holders in the
    row's round, G^c becomes (k G^c - own) / (k - 1), and a class that it alone held has no row. So it keeps its last
    upload of each class, with the round, in its memory (``own_logits`` (C, C), ``own_rounds`` (C,)).

    Args:
        channel: where the (C, C) table arrives.
        exclude_self: see above.
    """

    def __init__(self, channel: str, exclude_self: bool) -> None:
        super().__init__(channel, "running_all")
        self.exclude_self = exclude_self

    def receive(self, client: Client, message: Message | None) -> None:
        """Scatter the rows that exist into a table, less the client's own part if it is excluded."""
        super().receive(client, message)
        if self.exclude_self and message is not None and "own_rounds" in client.memory:
            client.received[self.channel] = self._without_own(client, message)

    def on_train_start(self, client: Client, batches: Batches) -> None:
        """Start the running sums."""
        client.scratch[self.channel] = ClassMeans(client.num_classes, client.num_classes)

    def on_train_batch_end(self, client: Client, step: StepView, epoch: int, epochs: int) -> None:
        """Add the logits of one training step."""
        client.scratch[self.channel].add(step.logits.detach(), step.y)

    def send(self, client: Client, batches: Batches) -> Message:
        """Return ``labels`` (K,), ``values`` (K, C) and ``counts`` (K,); remember them if they are to be excluded."""
        message = super().send(client, batches)
        if self.exclude_self:
            C, labels = client.num_classes, message["labels"]
            own = client.memory.get("own_logits", torch.zeros(C, C)).cpu().clone()
            rounds = client.memory.get("own_rounds", torch.full((C,), NEVER)).cpu().clone()
            own[labels], rounds[labels] = message["values"], client.round
            client.memory |= {"own_logits": own, "own_rounds": rounds}
        return message

    def _without_own(self, client: Client, message: Message) -> ClassTable:
        table, labels = client.received[self.channel], message["labels"].to(client.device)
        holders = message["holders"].to(client.device)
        part = client.memory["own_rounds"].to(client.device)[labels] == message["rounds"].to(client.device)
        own = client.memory["own_logits"].to(client.device)[labels].double()
        others = (holders - part.long()).clamp_min(1)[:, None]
        rest = (holders[:, None] * table.values[labels].double() - own * part[:, None]) / others
        values, mask = table.values.clone(), table.mask.clone()
        values[labels] = torch.where(part[:, None], rest.float(), table.values[labels])
        alone = labels[part & (holders == 1)]
        values[alone], mask[alone] = 0.0, False
        return ClassTable(values, mask)


class ClassLogits(Mean):
    """Uniform mean of the uploaded class-mean logits over the participants that hold the class.

    Args:
        absent: a class missing from a round: ``keep`` its last mean or ``drop`` it, as for prototypes.
        exclude_self: whether ``holders`` (K,) and ``rounds`` (K,) go along, without which nobody can take his own part
            out.
    """

    def __init__(self, absent: str, exclude_self: bool) -> None:
        super().__init__("uniform", absent)
        self.exclude_self = exclude_self

    def prepare(self, context: ServerContext) -> None:
        """Start without any row; rows have C entries."""
        super().prepare(replace(context, feature_dim=context.num_classes))
        self._holders = torch.zeros(context.num_classes, dtype=torch.int64)
        self._rounds = torch.full((context.num_classes,), NEVER)

    def update(self, uploads: Sequence[Upload], round: int) -> dict[str, float]:
        """Average the uploads of one round; note how many hold each class."""
        metrics = super().update(uploads, round)
        holders = torch.zeros_like(self._holders)
        for upload in uploads:
            holders[upload.message["labels"]] += 1
        uploaded = holders > 0
        self._holders[uploaded], self._rounds[uploaded] = holders[uploaded], round
        return metrics

    def broadcast(self) -> Message | None:
        """Return ``labels`` and ``values`` of the rows that exist, and what excluding needs; None before any does."""
        message = super().broadcast()
        if message is not None and self.exclude_self:
            labels = message["labels"]
            message |= {"holders": self._holders[labels], "rounds": self._rounds[labels]}
        return message

    def state(self) -> dict[str, Tensor]:
        """Return the live state."""
        return {**super().state(), "holders": self._holders, "rounds": self._rounds}
