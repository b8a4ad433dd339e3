"""Which prototypes a client of FedProc trains against."""

from __future__ import annotations

import torch

from fedsaf.core.contracts import Batches, Callback, Client
from fedsaf.prototypes.class_means import ClassMeans
from fedsaf.prototypes.class_table import ClassTable


class PrototypeTargets(Callback):
    """Chooses the prototypes that a client trains against.

    Args:
        channel: of the prototypes.
        source: ``global``, those received; ``own``, the client's class means under the received model instead, which
            is Algorithm 1 of FedProc, line 18, read literally.
    """

    def __init__(self, channel: str, source: str) -> None:
        if source not in ("global", "own"):
            raise ValueError(f"prototype targets are {source!r}; choose global or own")
        self.channel, self.source = channel, source

    def on_train_start(self, client: Client, batches: Batches) -> None:
        """Replace the received table for this round, if own prototypes are asked for."""
        if self.source == "global":
            return
        means = ClassMeans(client.num_classes, client.feature_dim)
        client.eval()
        with torch.no_grad():
            for x, y in batches:
                means.add(client(x)[0], y)
        table = means.compute()
        client.received[self.channel] = ClassTable(table.values.to(client.device), table.mask.to(client.device))
