"""Parameters that the server sends once and never changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedsaf.core.types import Message, ServerContext, Upload
from fedsaf.exchange.parameters import ParameterCarrier, travelling


class InitialParameterCarrier(ParameterCarrier):
    """The server's parameters down; nothing up.

    Args:
        scope: see `fedsaf.exchange.scopes.scope_module`.
        keep: True: they are where a client starts, and what it makes of them is its own. False: they replace what it
            has made of them at the start of each round.
    """

    def __init__(self, scope: str, keep: bool) -> None:
        super().__init__(scope, "average")
        self.keep, self.note = keep, f"{scope}.received"

    def apply(self, client: Any, message: Message | None) -> None:
        """Replace the scope's tensors, unless the client keeps its own."""
        if not (self.keep and self.note in client.memory):
            super().apply(client, message)

    def begin(self, client: Any, batches: Any) -> None:
        """Remember that this client has started."""
        client.memory[self.note] = torch.ones(1, dtype=torch.bool)

    def collect(self, client: Any, batches: Any) -> Message:
        """Return an empty message."""
        return {}


class FixedParameters:
    """The server's own draw of a scope, the same in every round.

    Args:
        scope: which part of a client.
    """

    needs_counts = False
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

    def state_dict(self) -> dict[str, Tensor]:
        """Return the parameters."""
        return dict(self._values)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore the parameters; KeyError if a tensor is missing."""
        self._values = {name: state[name] for name in self._values}
