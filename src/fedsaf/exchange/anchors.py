"""Client side of FedSA: local prototypes that are remembered, and the margin that rests on them."""

from __future__ import annotations

from fedsaf.core.contracts import Batches, Callback, Client
from fedsaf.core.types import Message
from fedsaf.exchange.channels import PrototypeChannel
from fedsaf.prototypes.margins import mean_of_min


class RememberingChannel(PrototypeChannel):
    """A prototype client that remembers the means it uploads, as ``<channel>.means`` in the client's memory.

    Fewer than two means have no distance between them and leave no memory.
    """

    def send(self, client: Client, batches: Batches) -> Message:
        """Return the message of `PrototypeChannel.collect`; note it for this round, its means until the next one."""
        message = super().send(client, batches)
        client.scratch[f"{self.channel}.sent"] = message
        client.memory.pop(f"{self.channel}.means", None)
        if len(message["values"]) > 1:
            client.memory[f"{self.channel}.means"] = message["values"].clone()
        return message


class RepeatedChannel(PrototypeChannel):
    """Global prototypes down over a channel of their own; up goes what another channel has just sent.

    The server has received those parts already, so the channel leaves them uncounted.

    Args:
        channel: of the received table.
        repeats: channel of a `RememberingChannel`, which comes before this one.
    """

    def __init__(self, channel: str, repeats: str) -> None:
        super().__init__(channel, "clean")
        self.repeats = repeats

    def send(self, client: Client, batches: Batches) -> Message:
        """Return the message of the other channel."""
        return dict(client.scratch[f"{self.repeats}.sent"])


class AnchorMargin(Callback):
    """The margin of FedSA, once per round into ``scratch``: ``g = max(g_local, g_global)``.

    Each is the mean over classes of the distance to the nearest other class; g_global of the anchors, g_local of the
    client's own prototypes of its previous participation, which has no say before the first or if they are fewer than
    two (g_global is never negative).

    Args:
        anchors: channel of the anchors, whose client is a `RememberingChannel`.
        note: name of the margin in ``scratch``.
    """

    def __init__(self, anchors: str, note: str) -> None:
        self.anchors, self.note = anchors, note

    def on_train_start(self, client: Client, batches: Batches) -> None:
        """Note the margin of this round.

        Raises:
            ValueError: a class has no anchor.
        """
        table = client.received.get(self.anchors)
        if table is None or not bool(table.mask.all()):
            raise ValueError(
                f"channel {self.anchors!r} brings no vector for some class; fedsa needs a constructor that has one for "
                "each from the start, such as prototype=semantic_anchor"
            )
        own = client.memory.get(f"{self.anchors}.means")
        client.scratch[self.note] = max(mean_of_min(table.values), 0.0 if own is None else mean_of_min(own))
