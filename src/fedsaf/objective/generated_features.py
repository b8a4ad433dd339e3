"""FedGen's term: the client's head must also classify features that the server's generator makes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fedsaf.core.types import StepView
from fedsaf.losses.numerics import inactive


class GeneratedCrossEntropy:
    """CE(h_i(G(noise, y')), y') for as many labels y' as the batch has, drawn from the label counts of all clients.

    G is in evaluation mode and constant; gradients reach the head only.

    Args:
        channel: where the generator arrives.
        label_channel: where the pooled label counts arrive.
    """

    def __init__(self, channel: str, label_channel: str) -> None:
        self.channel, self.label_channel = channel, label_channel

    def __call__(self, view: StepView) -> Tensor:
        """Return a scalar >= 0; a constant 0 while the server has sent no generator."""
        generator = view.received.get(self.channel)
        if generator is None:
            return inactive(view.logits)
        counts = view.received[self.label_channel]
        labels = torch.multinomial(counts.float(), len(view.y), replacement=True)
        with torch.no_grad():
            features = generator.draw(labels, None)
        return F.cross_entropy(view.model.head(features).float(), labels)
