"""FedDistill, also FD (Jeong et al., 2018): class-mean logits travel in the place of prototypes.

A round: the client receives the global mean logits G^c and minimises CE + lambda_p CE(logits, softmax(G^y)) where G^y
exists; it sends the means of its own logits by class, met in training mode over all batches of the round. The server
averages them uniformly over the participants that hold the class. The first round is plain cross-entropy.

Travels: up |C_i| C numbers, down C C of the classes that have logits. Register entries: D3, D16.
Dimension letters: B batch, C classes, K classes of a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from fedsaf.core.checks import one_of
from fedsaf.core.contracts import Batches, Client
from fedsaf.core.types import Message, ServerContext, StepView, Upload
from fedsaf.federation.method import Channel, Method
from fedsaf.losses.numerics import inactive
from fedsaf.losses.objective import objective
from fedsaf.methods.prototype import UNCOUNTED, PrototypeChannel
from fedsaf.prototypes.class_means import ClassMeans
from fedsaf.prototypes.class_table import ClassTable
from fedsaf.prototypes.mean import Mean

CHANNEL = "class_logits"
NEVER = -1


class LogitChannel(PrototypeChannel):
    """Mean logits by class up, met in training mode during all local epochs; their global means down.

    With ``exclude_self`` a client takes its own part out of what it receives, as the original does: of k holders in the
    row's round, G^c becomes (k G^c - own) / (k - 1), and a class that it alone held has no row. So it keeps its last
    upload of each class, with the round, in its memory (``own_logits`` (C, C), ``own_rounds`` (C,)).

    Args:
        exclude_self: see above.
    """

    def __init__(self, exclude_self: bool) -> None:
        super().__init__(CHANNEL, "running_all")
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


class LogitDistillation:
    """Soft cross-entropy of the logits against the global mean logits of their class.

    Args:
        targets: ``softmax``: probabilities of the mean logits; ``raw``: the mean logits themselves in their place, as
            the public benchmark library has it (register entry D16).
    """

    def __init__(self, targets: str) -> None:
        self.targets = one_of("targets", targets, ("softmax", "raw"))

    def __call__(self, view: StepView) -> Tensor:
        """Return the mean over the samples whose class has global logits; a constant 0 if there is none."""
        table = view.received.get(CHANNEL)
        if table is None:
            return inactive(view.logits)
        known = table.mask[view.y]
        if not bool(known.any()):
            return inactive(view.logits)
        targets = table.values[view.y[known]]
        if self.targets == "softmax":
            targets = targets.softmax(dim=1)
        return -(targets * F.log_softmax(view.logits[known].float(), dim=1)).sum(dim=1).mean()


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


def feddistill(name: str, weight: float, targets: str, absent: str, exclude_self: bool) -> Method:
    """Return the method.

    Args:
        name: as it appears in records.
        weight: lambda_p, of the soft cross-entropy.
        targets: ``softmax`` or ``raw``: what mean logits become before they are soft labels (D16).
        absent: ``keep`` or ``drop`` the mean of a class that nobody uploaded in a round (D3).
        exclude_self: whether a client takes its own part out of the mean; costs 2 C integers more down.
    """
    channel = Channel(
        LogitChannel(exclude_self),
        ClassLogits(absent, exclude_self),
        UNCOUNTED,
    )
    terms = objective(logit_distillation=(LogitDistillation(targets), weight))
    return Method(name, terms, channels={CHANNEL: channel})
