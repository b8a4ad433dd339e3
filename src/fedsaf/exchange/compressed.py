"""A parameter channel whose messages are compressed both ways, as FedKD (Wu et al., 2022) sends its mentee."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Size, Tensor

from fedsaf.core.contracts import Aggregator, Batches, Client
from fedsaf.core.types import Message, ServerContext, Upload
from fedsaf.exchange.codecs import Codec, Full, KernelwiseLowRank, LowRank, decode, encode
from fedsaf.exchange.parameters import ParameterChannel, mean_of_messages, travelling
from fedsaf.exchange.scopes import read_scope, scope_module, write_scope

CODECS: dict[str, Codec] = {"svd": LowRank(), "updates": LowRank(), "htfllib_svd": KernelwiseLowRank(), "none": Full()}
REFERENCE, UPDATE = "reference", "update:"


@dataclass(frozen=True)
class Compression:
    """What is decomposed, and how much of it is kept (register entry D17).

    Attributes:
        kind: ``svd`` decomposes the weights; ``updates`` what a round changed, as the original FedKD does;
            ``htfllib_svd`` see `KernelwiseLowRank`; ``none`` sends everything.
        energy_start: E_0, share of the squared singular values, in (0, 1].
        energy_end: E_t = energy_start + (energy_end - energy_start) t / T.
    """

    kind: str
    energy_start: float
    energy_end: float

    def __post_init__(self) -> None:
        if self.kind not in CODECS:
            raise ValueError(f"compression is {self.kind!r}; choose one of {', '.join(CODECS)}")
        for name in ("energy_start", "energy_end"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected a share in (0, 1]")

    @property
    def of_updates(self) -> bool:
        """Whether changes travel instead of weights."""
        return self.kind == "updates"

    def energy(self, round: int, rounds: int) -> float:
        """Return E_t.

        >>> Compression("svd", 0.9, 1.0).energy(5, 10)
        0.95
        """
        return self.energy_start + (self.energy_end - self.energy_start) * round / rounds

    def pack(self, tensors: Mapping[str, Tensor], base: Mapping[str, Tensor], energy: float) -> Message:
        """Return the message for these tensors; with ``updates`` it holds their change from ``base``, compressed."""
        if not self.of_updates:
            return encode(CODECS[self.kind], tensors, energy)
        changes = encode(CODECS[self.kind], {name: tensors[name] - base[name] for name in tensors}, energy)
        return {UPDATE + name: part for name, part in changes.items()}

    def unpack(self, message: Message, shapes: Mapping[str, Size], base: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors that a message stands for; ``base`` is read if it holds changes.

        Raises:
            KeyError: a part is missing.
        """
        changes = {n.removeprefix(UPDATE): part for n, part in message.items() if n.startswith(UPDATE)}
        if not changes:
            return decode(CODECS[self.kind], message, shapes)
        return {name: base[name] + change for name, change in decode(CODECS[self.kind], changes, shapes).items()}


class CompressedChannel(ParameterChannel):
    """`ParameterChannel` whose messages pass through a compression.

    Args:
        scope: see `scope_module`.
        buffers: ``average`` or ``ignore``.
        compression: the aggregator's.
    """

    def __init__(self, scope: str, buffers: str, compression: Compression) -> None:
        super().__init__(scope, buffers)
        self.compression = compression

    def receive(self, client: Client, message: Message | None) -> None:
        """Replace the scope's tensors by what the message stands for."""
        shapes = {name: t.shape for name, t in travelling(self._state(client), self.buffers).items()}
        tensors = self.compression.unpack(message, shapes, reference(message, shapes))
        write_scope(client, self.scope, tensors)
        if self.compression.of_updates:
            client.scratch[self.scope] = tensors

    def send(self, client: Client, batches: Batches) -> Message:
        """Return the scope's parameters, or their change since they were received, compressed with E_t."""
        tensors = travelling(read_scope(client, self.scope), self.buffers)
        base = client.scratch.pop(self.scope, {})
        return self.compression.pack(tensors, base, self.compression.energy(client.round, client.rounds))

    def _state(self, client: Client) -> Mapping[str, Tensor]:
        return scope_module(client, self.scope).state_dict()


class CompressedMean(Aggregator):
    """Mean of the reconstructed parameters over the participants, compressed again for the way down.

    Its state is the message that it sends: in the first round the initial parameters in full, later the compressed
    mean. With ``updates`` that message also holds, as part ``reference``, the parameters to which the change applies; a
    client of the former round holds them already, so the part is left out of the byte count.

    Args:
        scope: which part of a client, for the initial state.
        weighting: ``samples`` or ``uniform``.
        buffers: as the client's.
        compression: as the client's.

    Attributes:
        needs_counts: False.
        needs_uploads: True.
    """

    def __init__(self, scope: str, weighting: str, buffers: str, compression: Compression) -> None:
        if weighting not in ("samples", "uniform"):
            raise ValueError(f"weighting must be 'samples' or 'uniform', got {weighting!r}")
        self.scope, self.weighting, self.buffers, self.compression = scope, weighting, buffers, compression

    def prepare(self, context: ServerContext) -> None:
        """Start from the server's own draw, which goes out in full."""
        self._rounds = context.rounds
        self._message = travelling(context.initial(self.scope), self.buffers)
        self._shapes = {name: tensor.shape for name, tensor in self._message.items()}

    def update(self, uploads: Sequence[Upload], round: int) -> dict[str, float]:
        """Average what the uploads stand for, in float64; compress with E_t. Without uploads nothing changes.

        Returns:
            ``kept``: scalars of the compressed mean over scalars of the parameters.
        """
        if not uploads:
            return {}
        base = self._tensors(self._message)
        models = [self.compression.unpack(u.message, self._shapes, base) for u in uploads]
        weights = [float(u.num_samples) if self.weighting == "samples" else 1.0 for u in uploads]
        mean = mean_of_messages(models, weights)
        message = self.compression.pack(mean, base, self.compression.energy(round, self._rounds))
        kept = sum(part.numel() for part in message.values()) / sum(shape.numel() for shape in self._shapes.values())
        if self.compression.of_updates:
            message[REFERENCE] = torch.cat([tensor.flatten() for tensor in base.values()])
        self._message = message
        return {"kept": kept}

    def _tensors(self, message: Message) -> dict[str, Tensor]:
        return self.compression.unpack(message, self._shapes, reference(message, self._shapes))

    def broadcast(self) -> Message | None:
        """Return the compressed mean; before the first update the initial parameters."""
        return dict(self._message)

    def state_dict(self) -> dict[str, Tensor]:
        """Return what is sent."""
        return dict(self._message)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what is sent; KeyError if a part is missing."""
        self._tensors(dict(state))
        self._message = dict(state)


def reference(message: Message, shapes: Mapping[str, Size]) -> dict[str, Tensor]:
    """Return the parameters to which a message's change applies; empty if it holds none.

    Raises:
        KeyError: it holds changes, but not the reference.
    """
    if not any(name.startswith(UPDATE) for name in message):
        return {}
    pieces = message[REFERENCE].split([shape.numel() for shape in shapes.values()])
    return {name: piece.view(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}
