"""Client side of FedTSP's channel: class vectors come with the scale of their cosines."""

from __future__ import annotations

from fedsaf.core.contracts import Client
from fedsaf.core.types import Message
from fedsaf.exchange.channels import PrototypeChannel


class ScaledPrototypeChannel(PrototypeChannel):
    """A prototype client that also unpacks ``scale``, to ``received["<channel>.scale"]``."""

    def receive(self, client: Client, message: Message | None) -> None:
        """Unpack table and scale.

        Raises:
            ValueError: the constructor of this channel sends no scale.
        """
        super().receive(client, message)
        if message is None or "scale" not in message:
            raise ValueError(
                f"channel {self.channel!r} brings no scale of cosines; fedtsp needs a constructor that trains one, "
                "such as prototype=text_prior"
            )
        client.received[f"{self.channel}.scale"] = message["scale"].to(client.device)
