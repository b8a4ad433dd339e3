"""The vocabulary that all parts share: frozen records. Letters: B batch, d feature dimension, C classes, N clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

Message: TypeAlias = "dict[str, Tensor]"
"""Named tensors that travel together over one channel; on the CPU while they travel."""


@dataclass(frozen=True)
class StepView:
    """What a loss term may see of one training step; what is not listed is as of `fedsaf.core.contracts.Client`.

    Attributes:
        x: inputs as the model reads them: (B, channels, height, width) images, (B, L) token ids or (B, dim) counts.
        y: (B,) int64 labels.
        z: (B, d) representations.
        logits: (B, C).
        outputs: (z, logits) of auxiliary models that read the same batch, by name.
    """

    x: Tensor
    y: Tensor
    z: Tensor
    logits: Tensor
    round: int
    rounds: int
    received: Mapping[str, Any]
    model: Any
    auxiliary: Mapping[str, Any]
    memory: Mapping[str, Tensor]
    scratch: Mapping[str, Any]
    outputs: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)


@dataclass(frozen=True)
class Upload:
    """What one client sent over one channel in one round."""

    client: int
    message: Message
    num_samples: int


@dataclass(frozen=True)
class ImageFacts:
    """What the clients' images are like: 1 (grey) or 3 (RGB) ``channels``, ``size`` pixels a side.

    ``mean`` and ``std`` are per channel, of x / 255; ``fingerprint`` is that of the data set.
    """

    channels: int
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    fingerprint: str

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one sample."""
        return self.channels, self.size, self.size

    def __str__(self) -> str:
        return f"{self.channels} x {self.size} x {self.size} images"


@dataclass(frozen=True)
class TokenFacts:
    """What the clients' sequences are like: int64 token ids, cut or padded with the id 0 to one ``length`` L.

    ``num_tokens`` is V, the size of the vocabulary with its special tokens.
    """

    length: int
    num_tokens: int

    @property
    def shape(self) -> tuple[int]:
        """Of one sample."""
        return (self.length,)

    def __str__(self) -> str:
        return f"sequences of {self.length} tokens"


@dataclass(frozen=True)
class CountFacts:
    """What the clients' bags of words are like: float32 counts of ``dim`` words."""

    dim: int

    @property
    def shape(self) -> tuple[int]:
        """Of one sample."""
        return (self.dim,)

    def __str__(self) -> str:
        return f"counts of {self.dim} words"


InputFacts: TypeAlias = "ImageFacts | TokenFacts | CountFacts"
"""What a model has to know about its inputs."""


@dataclass(frozen=True)
class ServerContext:
    """What an aggregator is told once, before the first round.

    Attributes:
        num_classes: C.
        feature_dim: d.
        rounds: T.
        num_clients: N.
        class_counts: (N, C) int64, training samples per client and class, for methods in which clients tell them once.
        initial: scope ("all", "head", an auxiliary's name, ...) to the parameters the server starts from; the same draw
            for every method of a seed.
        class_names: of the C classes; empty if unknown.
        images: what the clients' images are like; None if they are not images.
    """

    num_classes: int
    feature_dim: int
    seed: int
    rounds: int = 1
    num_clients: int = 1
    class_counts: Tensor | None = None
    initial: Callable[[str], Message] | None = None
    class_names: Sequence[str] = ()
    images: ImageFacts | None = None


@dataclass(frozen=True)
class ClientResult:
    """What local training of one client brings home.

    Attributes:
        uploads: message by channel.
        num_samples: size of the training part.
        num_batches: optimiser steps taken.
        losses: mean value of each term over the steps, unweighted, and ``total``.
        active: number of steps in which each term contributed a gradient.
        seconds: wall time by kind: ``client``, ``data``.
    """

    client: int
    uploads: dict[str, Message]
    num_samples: int
    num_batches: int
    losses: dict[str, float]
    active: dict[str, int]
    seconds: dict[str, float]


@dataclass(frozen=True)
class RoundRecord:
    """Everything recorded about one round; plain Python values only.

    Attributes:
        round: 0 is the evaluation before any training, t the one after training round t.
        metrics: nested names to numbers; a function of the configuration alone, so a resumed run writes the same.
        clients: one flat row per client.
        timing: wall-clock seconds and memory; differs from run to run and is therefore kept apart.
    """

    round: int
    metrics: dict[str, Any]
    clients: list[dict[str, Any]] = field(default_factory=list)
    timing: dict[str, Any] = field(default_factory=dict)
