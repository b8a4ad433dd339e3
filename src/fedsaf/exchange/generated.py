"""Client side of FedKTL's channel: embeddings of classes up, pairs of image and latent down."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fedsaf.core.contracts import Batches, Client, ClientChannel
from fedsaf.core.types import Message
from fedsaf.prototypes.class_means import ClassMeans


@dataclass(frozen=True)
class GeneratedPairs:
    """What the server's generator made: one image per class, and the latent it was made from.

    Attributes:
        images: (K, channels, s, s), normalised as the client's own.
        latents: (K, w).
    """

    images: Tensor
    latents: Tensor


class EmbeddingChannel(ClientChannel):
    """Class means of the normalised outputs e of the client's head up, normalised again; `GeneratedPairs` down.

    Args:
        channel: name under which the pairs appear in the client's ``received``.
    """

    def __init__(self, channel: str) -> None:
        self.channel = channel

    def receive(self, client: Client, message: Message | None) -> None:
        """Unpack the pairs; None clears them.

        Raises:
            ValueError: the constructor of this channel makes no pairs.
        """
        client.received.pop(self.channel, None)
        if message is None:
            return
        if "images" not in message:
            raise ValueError(
                f"channel {self.channel!r} brings no images; fedktl needs prototype=generator_prior with "
                "prototype.output=pairs"
            )
        images, latents = message["images"].to(client.device), message["latents"].to(client.device)
        client.received[self.channel] = GeneratedPairs(images, latents)

    def send(self, client: Client, batches: Batches) -> Message:
        """Return ``labels`` (K,), ``values`` (K, C) of unit length and ``counts`` (K,), after training."""
        means = ClassMeans(client.num_classes, client.num_classes)
        client.eval()
        with torch.inference_mode():
            for x, y in batches:
                _, embeddings = client(x)
                means.add(F.normalize(embeddings.float(), dim=1, eps=1e-8), y)
        message = means.compute().to_message()
        return message | {"values": F.normalize(message["values"], dim=1, eps=1e-8)}
