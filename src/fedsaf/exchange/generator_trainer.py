"""FedGen (Zhu et al., 2021): heads go up, their mean and a generator of features, trained against them, come down.

Dimension letters: d feature dimension, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from fedsaf.core.contracts import Aggregator, Batches, Client, ClientChannel
from fedsaf.core.seeding import seeded, torch_generator
from fedsaf.core.types import Message, ServerContext, Upload
from fedsaf.exchange.head_trainer import linear_head
from fedsaf.exchange.parameters import mean_of_messages, travelling
from fedsaf.exchange.scopes import read_scope, write_scope
from fedsaf.models.generator import GeneratorShape

HEAD, GENERATOR = "head.", "generator."
COUNTER = "norm.num_batches_tracked"


def part(message: Message, prefix: str) -> Message:
    """Return the tensors whose names start with the prefix, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in message.items() if name.startswith(prefix)}


class HeadAndGenerator(ClientChannel):
    """The client's head up; the shared head and, once there is one, the generator down.

    Args:
        channel: where the generator arrives, as a module in evaluation mode.
        shape: of the generator.
    """

    def __init__(self, channel: str, shape: GeneratorShape) -> None:
        self.channel, self.shape = channel, shape

    def receive(self, client: Client, message: Message | None) -> None:
        """Replace the head; rebuild the generator, which is no part of the client's state."""
        if message is None:
            return
        write_scope(client, "head", part(message, HEAD))
        client.received.pop(self.channel, None)
        tensors = part(message, GENERATOR)
        if tensors:
            with torch.device("meta"):
                generator = self.shape.build(client.num_classes, client.feature_dim)
            state = {name: tensor.to(client.device) for name, tensor in tensors.items()}
            generator.load_state_dict({**state, COUNTER: torch.zeros((), dtype=torch.int64)}, assign=True)
            client.received[self.channel] = generator.eval()

    def send(self, client: Client, batches: Batches) -> Message:
        """Return the head, names prefixed by ``head.``."""
        return {f"{HEAD}{name}": tensor for name, tensor in read_scope(client, "head").items()}


class GeneratorTrainer(Aggregator):
    """Averages the heads and trains the generator against them.

    Each round, S_g steps of Adam (a fresh one) minimise CE(sum_i w_i h_i(G(noise, y')), y') over G, with w_i
    proportional to samples, heads fixed and labels y' drawn from the pooled label counts, so that a class nobody holds
    is never drawn. For linear heads the weighted sum of logits is the logits of the weighted mean head.

    Args:
        shape: of the generator.
        steps: S_g.
        batch_size: labels per step; with 1 batch normalisation works in evaluation mode.
        lr: of Adam.
        weighting: of the shared head: ``samples`` or ``uniform``.
        freeze: public code, where the trained generator is lost and clients use the untrained one from the first round
            on (register entry D13).

    Attributes:
        needs_counts: False.
        needs_uploads: True.
    """

    def __init__(
        self, shape: GeneratorShape, steps: int, batch_size: int, lr: float, weighting: str, freeze: bool
    ) -> None:
        for name, value in {"steps": steps, "batch_size": batch_size, "lr": lr}.items():
            if not value > 0:
                raise ValueError(f"{name} of the generator's training must be positive, got {value}")
        if weighting not in ("samples", "uniform"):
            raise ValueError(f"weighting must be 'samples' or 'uniform', got {weighting!r}")
        self.shape, self.steps, self.batch_size, self.lr = shape, steps, batch_size, lr
        self.weighting, self.freeze = weighting, freeze

    def prepare(self, context: ServerContext) -> None:
        """Draw the generator; start from the server's own head.

        Raises:
            ValueError: the head is not one linear layer, or no client has told its label counts.
        """
        if context.class_counts is None:
            raise ValueError("the generator needs context.class_counts, (num_clients, num_classes); got None")
        self._seed = context.seed
        self._labels = context.class_counts.sum(dim=0).double()
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
        samples = [float(upload.num_samples) for upload in uploads]
        heads = [part(upload.message, HEAD) for upload in uploads]
        metrics = {}
        if not self.freeze:
            metrics["generator_loss"] = self._fit(mean_of_messages(heads, samples), round)
            self._ready = torch.tensor(True)
        weights = samples if self.weighting == "samples" else [1.0] * len(heads)
        self._head = mean_of_messages(heads, weights)
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
        message = {f"{HEAD}{name}": tensor for name, tensor in self._head.items()}
        if bool(self._ready):
            tensors = travelling(self._generator.state_dict(), "average")
            message |= {f"{GENERATOR}{name}": tensor.clone() for name, tensor in tensors.items()}
        return message

    def state(self) -> dict[str, Tensor]:
        """Return the live state."""
        head = {f"{HEAD}{name}": tensor for name, tensor in self._head.items()}
        generator = {f"{GENERATOR}{name}": tensor for name, tensor in self._generator.state_dict().items()}
        return {**head, **generator, "ready": self._ready}
