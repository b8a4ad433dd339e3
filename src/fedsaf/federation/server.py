"""The server: one aggregator per channel, and the count of what passes through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from fedsaf.core.types import ClientResult, Message, ServerContext, Upload
from fedsaf.federation.method import Channel


class Server:
    """Holds the aggregators.

    Args:
        channels: by name.
        context: what aggregators are told before the first round.
    """

    def __init__(self, channels: Mapping[str, Channel], context: ServerContext) -> None:
        self.channels = channels
        for channel in channels.values():
            channel.aggregator.prepare(context)

    def broadcast(self) -> dict[str, Message | None]:
        """Return what each channel sends to a client now."""
        return {name: channel.aggregator.broadcast() for name, channel in self.channels.items()}

    @property
    def asks_first(self) -> list[str]:
        """Channels over which all clients upload once before round 0."""
        return [name for name, channel in self.channels.items() if channel.aggregator.asks_first]

    def update(
        self, results: Sequence[ClientResult], round: int, channels: Sequence[str] | None = None
    ) -> dict[str, float]:
        """Hand the uploads of one round, in client order, to each aggregator; return what they report.

        Args:
            results: what the participants brought home.
            round: index t; -1 before round 0.
            channels: whose aggregators are updated; None for all.
        """
        report: dict[str, float] = {}
        for name in self.channels if channels is None else channels:
            metrics = self.channels[name].aggregator.update(self.uploads(results, name), round)
            report |= {f"{name}/{key}": value for key, value in metrics.items()}
        return report

    @staticmethod
    def uploads(results: Sequence[ClientResult], channel: str) -> list[Upload]:
        """Return the uploads over one channel, in client order; empty messages are left out."""
        ordered = sorted(results, key=lambda result: result.client)
        return [Upload(r.client, r.uploads[channel], r.num_samples) for r in ordered if r.uploads.get(channel)]

    def upload_bytes(self, results: Sequence[ClientResult]) -> dict[str, int]:
        """Return the bytes that all participants sent, by channel and in ``total``."""
        counts = {
            name: 0 if channel.free_uploads else sum(channel.num_bytes(result.uploads.get(name)) for result in results)
            for name, channel in self.channels.items()
        }
        return {"total": sum(counts.values())} | counts

    def download_bytes(self, broadcast: Mapping[str, Message | None], num_receivers: int) -> dict[str, int]:
        """Return the bytes that the server sent to ``num_receivers`` clients, by channel and in ``total``.

        A channel whose content was sent once before round 0 costs nothing here.
        """
        counts = {
            name: 0 if channel.aggregator.setup_message() else num_receivers * channel.num_bytes(broadcast[name])
            for name, channel in self.channels.items()
        }
        return {"total": sum(counts.values())} | counts

    def setup_bytes(self, num_clients: int) -> int:
        """Return the bytes of one-time messages, which are sent once to every client and belong to no round."""
        return num_clients * sum(
            channel.num_bytes(channel.aggregator.setup_message()) for channel in self.channels.values()
        )

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state of every aggregator, keys prefixed by the channel."""
        return {
            f"{name}.{key}": tensor
            for name, channel in self.channels.items()
            for key, tensor in channel.aggregator.state_dict().items()
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore `state_dict`."""
        for name, channel in self.channels.items():
            prefix = f"{name}."
            channel.aggregator.load_state_dict(
                {key.removeprefix(prefix): tensor for key, tensor in state.items() if key.startswith(prefix)}
            )
