"""A channel carries one kind of knowledge between clients and server (class prototypes, parameters, logits, ...).

Its client half is a *carrier*, which knows one client and one message; its server half is an *aggregator*, which knows
uploads and its own state and nothing of clients. A message is a dict of named CPU tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from fedsaf.core.types import Message, ServerContext, StepView, Upload

if TYPE_CHECKING:
    from torch import Tensor


class Carrier(Protocol):
    """Client half of a channel. ``client`` is the client at work, ``batches`` reads its training part in order."""

    def apply(self, client: Any, message: Message | None) -> None:
        """Unpack what the server sent, before local training and before evaluation; None if it sent nothing."""
        ...

    def begin(self, client: Any, batches: Any) -> None:
        """Prepare for one round of local training."""
        ...

    def observe(self, client: Any, view: StepView, epoch: int, epochs: int) -> None:
        """See one training step, after its forward pass."""
        ...

    def collect(self, client: Any, batches: Any) -> Message:
        """Return what this client uploads after local training; may be empty."""
        ...


class Aggregator(Protocol):
    """Server half of a channel.

    Attributes:
        needs_counts: whether it reads the part ``counts``, the samples behind each row; otherwise that part stays at
            the client, which costs less and tells less.
        needs_uploads: whether it reads uploads at all; otherwise clients neither collect nor send any.
        asks_first: optional; whether all clients upload once before round 0, under the initial broadcast and
            untrained. `update` then sees these uploads as round -1.
    """

    needs_counts: bool
    needs_uploads: bool

    def prepare(self, context: ServerContext) -> None:
        """Create the initial state; called once."""
        ...

    def update(self, uploads: list[Upload], round: int) -> dict[str, float]:
        """Take the uploads of one round, in client order; return what is worth recording."""
        ...

    def broadcast(self) -> Message | None:
        """Return what every client of the next round receives; None while there is nothing."""
        ...

    def setup_message(self) -> Message | None:
        """Return what is sent to every client once, before round 0; then `broadcast` repeats it at no cost."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything the next round depends on."""
        ...

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore `state_dict`; raise KeyError or ValueError if a part is missing."""
        ...


@dataclass(frozen=True)
class Channel:
    """One carrier, one aggregator, and which parts of its messages cost nothing.

    Attributes:
        carrier: client half.
        aggregator: server half.
        uncounted: names of message parts left out of the byte count; by default of the configuration the row labels
            of prototypes, which the published tables do not count either.
    """

    carrier: Carrier
    aggregator: Aggregator
    uncounted: Sequence[str]

    @property
    def asks_first(self) -> bool:
        """Whether all clients upload once before round 0."""
        return getattr(self.aggregator, "asks_first", False)

    def collect(self, client: Any, batches: Any) -> Message:
        """Return what the carrier collects, less what the aggregator does not read."""
        if not self.aggregator.needs_uploads:
            return {}
        message = self.carrier.collect(client, batches)
        if not self.aggregator.needs_counts:
            message.pop("counts", None)
        return message

    def num_bytes(self, message: Message | None) -> int:
        """Return the payload size in bytes: elements times element size over the counted parts; 0 for None."""
        if message is None:
            return 0
        return sum(
            part.numel() * part.element_size() for name, part in message.items() if name not in tuple(self.uncounted)
        )
