"""Label counts of all clients, told once before the first round; FedGen draws its labels from them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from fedsaf.core.contracts import Aggregator, Batches, Client, ClientChannel
from fedsaf.core.types import Message, ServerContext, Upload


class LabelCountChannel(ClientChannel):
    """Keeps the pooled counts, (C,) int64, in the client's ``received``.

    Args:
        channel: under which name.
    """

    def __init__(self, channel: str) -> None:
        self.channel = channel

    def receive(self, client: Client, message: Message | None) -> None:
        """Keep the counts."""
        client.received[self.channel] = message["pooled"].to(client.device)

    def send(self, client: Client, batches: Batches) -> Message:
        """Return nothing: the counts were told before the first round."""
        return {}


class LabelCounts(Aggregator):
    """Pooled training samples by class. Setup: C integers per client, one way of an exchange that never recurs.

    Attributes:
        needs_counts: False.
        needs_uploads: False.
    """

    needs_uploads = False

    def prepare(self, context: ServerContext) -> None:
        """Add up what the clients told.

        Raises:
            ValueError: no client has told its counts.
        """
        if context.class_counts is None:
            raise ValueError("label counts need context.class_counts, (num_clients, num_classes); got None")
        self._pooled = context.class_counts.sum(dim=0)

    def update(self, uploads: Sequence[Upload], round: int) -> dict[str, float]:
        """Change nothing."""
        return {}

    def broadcast(self) -> Message | None:
        """Return ``pooled`` (C,) int64, the same in every round."""
        return {"pooled": self._pooled}

    def setup_message(self) -> Message | None:
        """Return the counts: they travel once and never again."""
        return self.broadcast()

    def state(self) -> dict[str, Tensor]:
        """Return the live state."""
        return {"pooled": self._pooled}
