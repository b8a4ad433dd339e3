"""What a method does at a client beside losses and messages: before and after a step, before and after a round."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor
from torch.optim import Optimizer


class LocalHook(Protocol):
    """Steps in at fixed moments of a client's round.

    It knows one client and keeps its notes in that client's ``scratch`` (for this round) or ``memory`` (until its next
    participation), never in itself, so that a checkpoint holds them and any rank may run it.
    """

    def begin(self, client: Any, batches: Any) -> None:
        """Run after the carriers have applied, before the first step."""
        ...

    def choose(self, client: Any, positions: Tensor) -> Tensor:
        """Return which positions of the training part an epoch uses, in order; asked at the start of each epoch."""
        ...

    def before_step(self, client: Any, optimizer: Optimizer) -> None:
        """Run between backward and optimiser step, with gradients in place."""
        ...

    def after_step(self, client: Any, optimizer: Optimizer) -> None:
        """Run after each optimiser step."""
        ...

    def end(self, client: Any, batches: Any) -> None:
        """Run after the last step, before the carriers collect."""
        ...


class NoHook:
    """Does nothing at any moment; the base of hooks that need only some."""

    def begin(self, client: Any, batches: Any) -> None:
        """Do nothing."""

    def choose(self, client: Any, positions: Tensor) -> Tensor:
        """Use all of them."""
        return positions

    def before_step(self, client: Any, optimizer: Optimizer) -> None:
        """Do nothing."""

    def after_step(self, client: Any, optimizer: Optimizer) -> None:
        """Do nothing."""

    def end(self, client: Any, batches: Any) -> None:
        """Do nothing."""
