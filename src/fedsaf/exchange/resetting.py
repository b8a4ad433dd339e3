"""Public code of FedMRL: a auxiliary trains for a round and is then thrown away."""

from __future__ import annotations

from fedsaf.core.contracts import Batches, Callback, Client
from fedsaf.exchange.scopes import AUXILIARY, read_scope, write_scope


class DiscardTraining(Callback):
    """Put a auxiliary back to what it was before the round, so that it keeps its initial weights for ever (D18).

    Args:
        auxiliary: its name.
        enabled: False does nothing.
    """

    def __init__(self, auxiliary: str, enabled: bool) -> None:
        self.scope, self.enabled = f"{AUXILIARY}{auxiliary}", enabled

    def on_train_start(self, client: Client, batches: Batches) -> None:
        """Note the auxiliary's tensors."""
        if self.enabled:
            client.scratch[self.scope] = read_scope(client, self.scope)

    def on_train_end(self, client: Client, batches: Batches) -> None:
        """Put them back."""
        if self.enabled:
            write_scope(client, self.scope, client.scratch.pop(self.scope))
