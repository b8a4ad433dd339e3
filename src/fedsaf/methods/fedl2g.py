"""FedL2G (Zhang et al., 2024): the server learns one guiding vector per class from what it does to quiz batches.

1. A client receives a guiding vector V^c of every class, from round 0 on: of features, or of logits (``space``).
2. It minimises CE + MSE(z, V^y), or MSE(logits, V^y), gradient clipped to norm 100, on all but the first q B samples,
   its quiz set. In the warm-up it does not train at all.
3. It takes one differentiable SGD step on a study batch, and sends the gradient of the stepped model's cross-entropy on
   a quiz batch with respect to V.
4. The server takes one SGD step on the mean of the gradients by class, clipped to norm 100.

Travels: up the rows of the classes of the study batch, down C d (or C C) numbers.
Source: the public benchmark library. Differences: the study and the quiz batch are drawn anew every round; a run of
fewer than 200 rounds warms up for a quarter of them; the meta step leaves normalisation statistics as they are.
Dimension letters: B batch, K classes of a message, w width of a guiding vector (d for features, C for logits),
C classes, n samples of a client.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from fedsaf.core.checks import one_of, positive
from fedsaf.core.contracts import Aggregator, Batches, Callback, Client
from fedsaf.core.seeding import torch_generator
from fedsaf.core.types import Message, ServerContext, StepView, Upload
from fedsaf.federation.method import Channel, Method
from fedsaf.losses.objective import objective
from fedsaf.methods.auxiliary_model import GradientClipping
from fedsaf.methods.prototype import UNCOUNTED, PrototypeChannel
from fedsaf.prototypes.class_table import ClassTable, uploaded_pairs

QUIZ, TRAIN = "quiz_size", "train_size"
SPACES = ("features", "logits")


class Guidance:
    """Mean squared distance of features or logits to the guiding vector of their class.

    Args:
        space: ``features`` or ``logits``.
    """

    def __init__(self, space: str) -> None:
        self.space = one_of("space", space, SPACES)

    def __call__(self, view: StepView) -> Tensor:
        """Return the mean over all entries, a scalar >= 0."""
        rows = view.z if self.space == "features" else view.logits
        return F.mse_loss(rows.float(), view.received["guidance"].values[view.y])


class QuizSet(Callback):
    """Keeps the first samples of a client out of training, for the quiz; in the warm-up trains nothing at all.

    Args:
        batches: q; the quiz set has q B samples, at most floor(n / 2).
        batch_size: B.
        warm_up: rounds in which only the guidance learns, at most a quarter of all rounds.
    """

    def __init__(self, batches: int, batch_size: int, warm_up: int) -> None:
        for name, value, least in (("batches", batches, 1), ("batch_size", batch_size, 1), ("warm_up", warm_up, 0)):
            if value < least:
                raise ValueError(f"{name} of the quiz is {value}; expected at least {least}")
        self.size, self.warm_up = batches * batch_size, warm_up

    def select_samples(self, client: Client, positions: Tensor) -> Tensor:
        """Return the positions to train on; note the sizes of both parts."""
        quiz = min(self.size, len(positions) // 2)
        client.scratch |= {QUIZ: quiz, TRAIN: len(positions) - quiz}
        if client.round < min(self.warm_up, client.rounds // 4):
            return positions[:0]
        if len(positions) - quiz == 1:
            freeze_statistics(client)
        return positions[positions >= quiz]


class GuidanceChannel(PrototypeChannel):
    """Guiding vectors down; up, how the loss on a quiz batch would change with them.

    After training, on one study batch, a differentiable SGD step of the client's objective is taken,
    w' = w - lr dL/dw, and the cross-entropy of w' on a quiz batch is differentiated with respect to the guiding
    vectors. The client's model is left as it is.

    Args:
        batch_size: B, samples of the study and of the quiz batch.
        lr: eta of the step.
    """

    def __init__(self, batch_size: int, lr: float) -> None:
        super().__init__("guidance", "clean")
        self.batch_size, self.lr = batch_size, lr

    def send(self, client: Client, batches: Batches) -> Message:
        """Return ``labels`` (K,) and ``values`` (K, w), the gradient rows that are not zero; nothing without a quiz."""
        quiz_size, train_size = client.scratch[QUIZ], client.scratch[TRAIN]
        if quiz_size == 0:
            return {}
        quiz = torch.randperm(quiz_size)[: self.batch_size]
        study = quiz_size + torch.randperm(train_size)[: self.batch_size]
        x, y = gather(batches, torch.cat([study, quiz]))
        cut = len(study)
        gradient = self.meta_gradient(client, (x[:cut], y[:cut]), (x[cut:], y[cut:])).cpu()
        return ClassTable(gradient, gradient.any(dim=1)).to_message()

    def meta_gradient(self, client: Client, study: tuple[Tensor, Tensor], quiz: tuple[Tensor, Tensor]) -> Tensor:
        """Return the gradient (C, w) of the quiz loss after one step on the study batch."""
        table = client.received[self.channel]
        guide = replace(table, values=table.values.detach().clone().requires_grad_())
        model = client.model
        weights = {n: p.detach().clone().requires_grad_() for n, p in model.named_parameters() if p.requires_grad}
        buffers = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
        client.train()
        if min(len(study[1]), len(quiz[1])) == 1:
            freeze_statistics(client)
        view = self._view(client, guide, *study, *functional_call(model, {**weights, **buffers}, (study[0],)))
        loss, _ = client.objective(view)
        slopes = torch.autograd.grad(loss, list(weights.values()), create_graph=True, allow_unused=True)
        stepped = {
            name: weight if slope is None else weight - self.lr * slope
            for (name, weight), slope in zip(weights.items(), slopes, strict=True)
        }
        _, logits = functional_call(model, {**stepped, **buffers}, (quiz[0],))
        return torch.autograd.grad(F.cross_entropy(logits.float(), quiz[1]), guide.values)[0]

    def _view(self, client: Client, guide: ClassTable, x: Tensor, y: Tensor, z: Tensor, logits: Tensor) -> StepView:
        return StepView(
            x=x,
            y=y,
            z=z,
            logits=logits,
            round=client.round,
            rounds=client.rounds,
            received={**client.received, self.channel: guide},
            model=client.model,
            auxiliary=client.auxiliary,
            memory=client.memory,
            scratch=client.scratch,
        )


def gather(batches: Iterable[tuple[Tensor, Tensor]], positions: Tensor) -> tuple[Tensor, Tensor]:
    """Return the samples at these positions of a pass over a client's training part, in this order.

    Args:
        batches: (x, y) in stored order.
        positions: (k,) distinct, on the CPU.
    """
    order = positions.argsort()
    ascending, start = positions[order], 0
    xs, ys = [], []
    for x, y in batches:
        inside = ascending[(ascending >= start) & (ascending < start + len(y))] - start
        xs.append(x[inside.to(x.device)])
        ys.append(y[inside.to(y.device)])
        start += len(y)
    x, y, back = torch.cat(xs), torch.cat(ys), order.argsort()
    return x[back.to(x.device)], y[back.to(y.device)]


def freeze_statistics(module: nn.Module) -> None:
    """Put batch normalisation into evaluation mode: a batch of one sample has no statistics."""
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.eval()


class GuidanceTrainer(Aggregator):
    """Guiding vectors, standard normal at first; each round one SGD step on the mean of the uploaded gradients.

    Args:
        space: ``features`` (w = d) or ``logits`` (w = C).
        lr: of the step.
        max_norm: the whole gradient is scaled down to this L2 norm.
    """

    def __init__(self, space: str, lr: float, max_norm: float) -> None:
        positive(lr=lr, max_norm=max_norm)
        self.space, self.lr, self.max_norm = one_of("space", space, SPACES), lr, max_norm

    def prepare(self, context: ServerContext) -> None:
        """Draw the vectors from the seed."""
        width = context.feature_dim if self.space == "features" else context.num_classes
        self._values = torch.randn(context.num_classes, width, generator=torch_generator(context.seed, "guidance/init"))

    def update(self, uploads: Sequence[Upload], round: int) -> dict[str, float]:
        """Step against the mean, by class, of the uploaded rows; a class that nobody uploaded stays.

        Returns:
            ``gradient_norm`` before clipping; nothing without uploads.

        Raises:
            ValueError: malformed message.
            FloatingPointError: NaN or Inf in a gradient.
        """
        labels, slopes, _ = uploaded_pairs(uploads, *self._values.shape)
        if not len(labels):
            return {}
        sums = torch.zeros(self._values.shape, dtype=torch.float64).index_add_(0, labels, slopes.double())
        gradient = sums / labels.bincount(minlength=len(sums)).clamp_min(1)[:, None]
        norm = float(gradient.norm())
        self._values = (self._values.double() - self.lr * gradient * min(1.0, self.max_norm / max(norm, 1e-12))).float()
        return {"gradient_norm": norm}

    def broadcast(self) -> Message | None:
        """Return ``labels`` and ``values`` of all classes."""
        return ClassTable.full(self._values).to_message()

    def state(self) -> dict[str, Tensor]:
        """Return the live state."""
        return {"values": self._values}


def fedl2g(
    name: str,
    space: str,
    guidance_weight: float,
    quiz_batches: int,
    batch_size: int,
    warm_up: int,
    max_norm: float,
    lr: float,
    server_lr: float,
    server_max_norm: float,
) -> Method:
    """Wire the method.

    Args:
        name: as it appears in records.
        space: of the guidance, ``features`` or ``logits``.
        guidance_weight: of `Guidance`.
        quiz_batches: q, see `QuizSet`.
        batch_size: B, see `QuizSet` and `GuidanceChannel`.
        warm_up: see `QuizSet`.
        max_norm: of the client's gradient.
        lr: eta, see `GuidanceChannel`.
        server_lr: see `GuidanceTrainer`.
        server_max_norm: see `GuidanceTrainer`.
    """
    trainer = GuidanceTrainer(space, server_lr, server_max_norm)
    return Method(
        name=name,
        objective=objective(guidance=(Guidance(space), guidance_weight)),
        callbacks=[QuizSet(quiz_batches, batch_size, warm_up), GradientClipping(max_norm)],
        channels={"guidance": Channel(GuidanceChannel(batch_size, lr), trainer, UNCOUNTED)},
    )
