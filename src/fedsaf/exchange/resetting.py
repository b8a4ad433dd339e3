"""Public code of FedMRL: a companion trains for a round and is then thrown away."""

from __future__ import annotations

from typing import Any

from fedsaf.exchange.hooks import NoHook
from fedsaf.exchange.scopes import COMPANION, read_scope, write_scope


class DiscardTraining(NoHook):
    """Put a companion back to what it was before the round, so that it keeps its initial weights for ever (D18).

    Args:
        companion: its name.
        enabled: False does nothing.
    """

    def __init__(self, companion: str, enabled: bool) -> None:
        self.scope, self.enabled = f"{COMPANION}{companion}", enabled

    def begin(self, client: Any, batches: Any) -> None:
        """Note the companion's tensors."""
        if self.enabled:
            client.scratch[self.scope] = read_scope(client, self.scope)

    def end(self, client: Any, batches: Any) -> None:
        """Put them back."""
        if self.enabled:
            write_scope(client, self.scope, client.scratch.pop(self.scope))
