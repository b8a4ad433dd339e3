"""Parameters that the server sends once and never changes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedsaf.core.contracts import Aggregator, Batches, Client
from fedsaf.core.types import Message, ServerContext, Upload
from fedsaf.exchange.parameters import ParameterChannel, travelling


class InitialParameterChannel(ParameterChannel):
    """The server's parameters down; nothing up.

    Args:
        scope: see `fedsaf.exchange.scopes.scope_module`.
        keep: True: they are where a client starts, and what it makes of them is its own. False: they replace what it
            has made of them at the start of each round.
    """

    def __init__(self, scope: str, keep: bool) -> None:
        super().__init__(scope, "average")
        self.keep, self.note = keep, f"{scope}.received"

    def receive(self, client: Client, message: Message | None) -> None:
        """Replace the scope's tensors, unless the client keeps its own."""
        if not (self.keep and self.note in client.memory):
            super().receive(client, message)

    def on_train_start(self, client: Client, batches: Batches) -> None:
        """Remember that this client has started."""
        client.memory[self.note] = torch.ones(1, dtype=torch.bool)

    def send(self, client: Client, batches: Batches) -> Message:
        """Return an empty message."""
        return {}


class FixedParameters(Aggregator):
    """The server's own draw of a scope, the same in every round.

    Args:
        scope: which part of a client.
    """

    needs_uploads = False

    def __init__(self, scope: str) -> None:
        self.scope = scope

    def prepare(self, context: ServerContext) -> None:
        """Take the draw."""
        self._values = travelling(context.initial(self.scope), "average")

    def update(self, uploads: Sequence[Upload], round: int) -> dict[str, float]:
        """Change nothing."""
        return {}

    def broadcast(self) -> Message | None:
        """Return the parameters."""
        return dict(self._values)

    def setup_message(self) -> Message | None:
        """Return the parameters: they travel once, ahead of the rounds."""
        return self.broadcast()

    def state(self) -> dict[str, Tensor]:
        """Return the live state."""
        return self._values
