"""FedGen (Zhu et al., 2021): the server trains a generator G of features, from which clients' heads learn too.

Before the first round every client tells its label counts. A round: the client takes over the mean head and, once there
is one, receives G; it minimises CE(h(f(x)), y) + w CE(h(G(noise, y')), y') with G constant and y' drawn from the pooled
counts, and sends its head. The server runs S_g Adam steps on CE(sum_i w_i h_i(G(noise, y')), y') over G, with w_i
by samples and heads fixed, then averages the heads. A class that nobody holds is never drawn.

Travels: the head up; head and G (with its normalisation statistics) down; label counts once, C integers per client.
Left out: the original's diversity loss, teacher weights by label and decaying weights. Register entries: D13.
Dimension letters: B batch, d feature dimension, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from fedsaf.core.checks import one_of, positive
from fedsaf.core.contracts import Aggregator, Batches, Client, ClientChannel
from fedsaf.core.seeding import seeded, torch_generator
from fedsaf.core.types import Message, ServerContext, StepView, Upload
from fedsaf.federation.method import Channel, Method
from fedsaf.federation.scopes import read_scope, write_scope
from fedsaf.losses.numerics import inactive
from fedsaf.losses.objective import objective
from fedsaf.methods.averaging import WEIGHTINGS, mean_of_messages, travelling
from fedsaf.methods.fedgh import linear_head

COUNTS, CHANNEL = "label_counts", "generator"
HEAD, GENERATOR = "head.", "generator."
COUNTER = "norm.num_batches_tracked"
NOISES: dict[str, Callable[..., Tensor]] = {"uniform": torch.rand, "normal": torch.randn}  # on [0, 1); standard


class FeatureGenerator(nn.Module):
    """[noise; one-hot label] -> linear -> batch normalisation -> ReLU -> linear -> feature.

    With noise of 32, C = 100, 512 hidden units and d = 512: 331,776 parameters.
    """

    def __init__(self, shape: GeneratorShape, num_classes: int, feature_dim: int) -> None:
        super().__init__()
        self.shape, self.num_classes = shape, num_classes
        self.hidden = nn.Linear(shape.noise_dim + num_classes, shape.hidden)
        self.norm = nn.BatchNorm1d(shape.hidden)
        self.output = nn.Linear(shape.hidden, feature_dim)

    def forward(self, noise: Tensor, labels: Tensor) -> Tensor:
        """Map noise (B, noise_dim) and labels (B,) to features (B, d)."""
        inputs = torch.cat([noise, F.one_hot(labels, self.num_classes).to(noise.dtype)], dim=1)
        return self.output(torch.relu(self.norm(self.hidden(inputs))))

    def draw(self, labels: Tensor, generator: Generator | None) -> Tensor:
        """Return features (B, d) for labels (B,) from fresh noise; None takes the ambient random stream."""
        size = (len(labels), self.shape.noise_dim)
        return self(NOISES[self.shape.noise](size, generator=generator, device=labels.device), labels)


@dataclass(frozen=True)
class GeneratorShape:
    """What client and server must agree on to build the same generator.

    Attributes:
        noise_dim: entries of the noise.
        hidden: hidden units.
        noise: a name of ``NOISES``.
    """

    noise_dim: int
    hidden: int
    noise: str

    def __post_init__(self) -> None:
        one_of("noise", self.noise, NOISES)

    def build(self, num_classes: int, feature_dim: int) -> FeatureGenerator:
        """Return a generator with weights from the ambient random stream."""
        return FeatureGenerator(self, num_classes, feature_dim)


class LabelCountChannel(ClientChannel):
    """Keeps the pooled counts, (C,) int64, in the client's ``received``; nothing goes up."""

    def receive(self, client: Client, message: Message | None) -> None:
        """Keep the counts."""
        if message is not None:
            client.received[COUNTS] = message["pooled"].to(client.device)


class LabelCounts(Aggregator):
    """Pooled training samples by class, told once, ahead of the rounds."""

    needs_uploads = False

    def prepare(self, context: ServerContext) -> None:
        """Add up what the clients told."""
        self._pooled = pooled_counts(context)

    def broadcast(self) -> Message | None:
        """Return ``pooled`` (C,) int64, the same in every round."""
        return {"pooled": self._pooled}

    def setup_message(self) -> Message | None:
        """Return the counts."""
        return self.broadcast()

    def state(self) -> dict[str, Tensor]:
        """Return the live state."""
        return {"pooled": self._pooled}


def pooled_counts(context: ServerContext) -> Tensor:
    """Return the training samples of all clients by class, (C,) int64.

    Raises:
        ValueError: no client has told its counts.
    """
    if context.class_counts is None:
        raise ValueError("FedGen needs context.class_counts, (num_clients, num_classes); got None")
    return context.class_counts.sum(dim=0)


class HeadAndGenerator(ClientChannel):
    """The client's head up; the shared head and, once there is one, the generator down.

    Args:
        shape: of the generator, which arrives as a module in evaluation mode.
    """

    def __init__(self, shape: GeneratorShape) -> None:
        self.shape = shape

    def receive(self, client: Client, message: Message | None) -> None:
        """Replace the head; rebuild the generator, which is no part of the client's state."""
        if message is None:
            return
        write_scope(client, "head", part(message, HEAD))
        client.received.pop(CHANNEL, None)
        tensors = part(message, GENERATOR)
        if tensors:
            with torch.device("meta"):
                generator = self.shape.build(client.num_classes, client.feature_dim)
            state = {name: tensor.to(client.device) for name, tensor in tensors.items()}
            generator.load_state_dict({**state, COUNTER: torch.zeros((), dtype=torch.int64)}, assign=True)
            client.received[CHANNEL] = generator.eval()

    def send(self, client: Client, batches: Batches) -> Message:
        """Return the head, names prefixed by ``head.``."""
        return prefixed(HEAD, read_scope(client, "head"))


class GeneratedCrossEntropy:
    """CE(h_i(G(noise, y')), y') for as many labels y' as the batch has; gradients reach the head only."""

    def __call__(self, view: StepView) -> Tensor:
        """Return a scalar >= 0; a constant 0 while the server has sent no generator."""
        generator = view.received.get(CHANNEL)
        if generator is None:
            return inactive(view.logits)
        labels = torch.multinomial(view.received[COUNTS].float(), len(view.y), replacement=True)
        with torch.no_grad():
            features = generator.draw(labels, None)
        return F.cross_entropy(view.model.head(features).float(), labels)


class GeneratorTrainer(Aggregator):
    """Trains the generator against the uploaded heads with a fresh Adam every round, and averages the heads.

    For linear heads the weighted sum of logits is the logits of the weighted mean head.

    Args:
        shape: of the generator.
        steps: S_g.
        batch_size: labels per step; with 1 batch normalisation works in evaluation mode.
        lr: of Adam.
        weighting: of the shared head: ``samples`` or ``uniform``.
        freeze: public code, where the trained generator is lost and clients use the untrained one from the first round
            on (register entry D13).
    """

    def __init__(
        self, shape: GeneratorShape, steps: int, batch_size: int, lr: float, weighting: str, freeze: bool
    ) -> None:
        positive(steps=steps, batch_size=batch_size, server_lr=lr)
        self.shape, self.steps, self.batch_size, self.lr = shape, steps, batch_size, lr
        self.weighting, self.freeze = one_of("weighting", weighting, WEIGHTINGS), freeze

    def prepare(self, context: ServerContext) -> None:
        """Draw the generator; start from the server's own head.

        Raises:
            ValueError: the head is not one linear layer, or no client has told its label counts.
        """
        self._seed = context.seed
        self._labels = pooled_counts(context).double()
        self._head = linear_head(context.initial("head"))
        with seeded(context.seed, "generator/init"):
            self._generator = self.shape.build(context.num_classes, context.feature_dim).eval()
        self._ready = torch.tensor(self.freeze)

    def update(self, uploads: Sequence[Upload], round: int) -> dict[str, float]:
        """Train the generator against the uploaded heads, then average them; without uploads nothing changes.

        Returns:
            ``generator_loss``: mean over the steps, unless the generator is frozen.

        Raises:
            FloatingPointError: the training diverges.
        """
        if not uploads:
            return {}
        heads, samples = [part(u.message, HEAD) for u in uploads], [u.num_samples for u in uploads]
        metrics = {}
        if not self.freeze:
            metrics["generator_loss"] = self._fit(mean_of_messages(heads, samples, "samples"), round)
            self._ready = torch.tensor(True)
        self._head = mean_of_messages(heads, samples, self.weighting)
        return metrics

    @torch.enable_grad()
    def _fit(self, ensemble: Message, round: int) -> float:
        generator = self._generator.train(self.batch_size > 1)
        optimizer = torch.optim.Adam(generator.parameters(), lr=self.lr, betas=(0.9, 0.999))
        stream, total = torch_generator(self._seed, "generator/train", round), 0.0
        for _ in range(self.steps):
            labels = torch.multinomial(self._labels, self.batch_size, replacement=True, generator=stream)
            features = generator.draw(labels, stream)
            loss = F.cross_entropy(F.linear(features, ensemble["weight"], ensemble["bias"]), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        generator.eval()
        if not math.isfinite(total):
            raise FloatingPointError(f"the generator diverged in round {round}: loss {total}")
        return total / self.steps

    def broadcast(self) -> Message | None:
        """Return the head and, after its first training, the generator with its running statistics."""
        tensors = travelling(self._generator.state_dict(), "average") if bool(self._ready) else {}
        return prefixed(HEAD, self._head) | prefixed(GENERATOR, {n: t.clone() for n, t in tensors.items()})

    def state(self) -> dict[str, Tensor]:
        """Return the live state."""
        generator = prefixed(GENERATOR, self._generator.state_dict())
        return prefixed(HEAD, self._head) | generator | {"ready": self._ready}


def part(message: Message, prefix: str) -> Message:
    """Return the tensors whose names start with the prefix, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in message.items() if name.startswith(prefix)}


def prefixed(prefix: str, tensors: Message) -> Message:
    """Return the tensors under names that start with the prefix."""
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def fedgen(
    name: str,
    weight: float,
    noise_dim: int,
    hidden: int,
    noise: str,
    steps: int,
    batch_size: int,
    server_lr: float,
    freeze: bool,
    weighting: str,
) -> Method:
    """Return the method.

    Args:
        name: as it appears in records.
        weight: w, of what the generator makes.
        noise_dim: entries of the noise.
        hidden: hidden units of the generator.
        noise: ``uniform`` on [0, 1), or ``normal``.
        steps: S_g, Adam steps per round.
        batch_size: labels per step.
        server_lr: of Adam.
        freeze: whether the trained generator is lost (D13).
        weighting: ``samples`` or ``uniform``, of the mean head.
    """
    shape = GeneratorShape(noise_dim, hidden, noise)
    trainer = GeneratorTrainer(shape, steps, batch_size, server_lr, weighting, freeze)
    return Method(
        name,
        objective(generated_cross_entropy=(GeneratedCrossEntropy(), weight)),
        ["one_head"],
        channels={
            COUNTS: Channel(LabelCountChannel(), LabelCounts()),
            CHANNEL: Channel(HeadAndGenerator(shape), trainer),
        },
    )
