"""The mean of class means with a choice of what stands in its place before the first round, FedProc."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fedsaf.core.seeding import torch_generator
from fedsaf.core.types import ServerContext, Upload
from fedsaf.prototypes.class_table import ClassTable
from fedsaf.prototypes.constructors import Mean

INITIAL = ("exchange", "random", "none")


class StartedMean(Mean):
    """`Mean` that may have prototypes in round 0 already.

    Attributes:
        asks_first: whether every client is asked for its class means under the initial model before round 0.
    """

    def __init__(self, weighting: str, absent: str, initial: str) -> None:
        """Choose the mean and its start.

        Args:
            weighting: see `Mean`.
            absent: see `Mean`.
            initial: ``exchange`` averages the class means of all clients under the initial model, at the cost of one
                exchange; ``random`` draws a unit vector for each class, used in round 0 and forgotten at the first
                update, so that a class that nobody has uploaded has none; ``none`` starts without prototypes.

        Raises:
            ValueError: another choice.
        """
        super().__init__(weighting, absent)
        if initial not in INITIAL:
            raise ValueError(f"initial must be one of {', '.join(INITIAL)}, got {initial!r}")
        self.initial = initial
        self.asks_first = initial == "exchange"

    def prepare(self, context: ServerContext) -> None:
        """Start empty, or with a keyed draw of directions that are uniform on the sphere."""
        super().prepare(context)
        if self.initial == "random":
            generator = torch_generator(context.seed, "initial-prototypes")
            directions = torch.randn(self._table.values.shape, generator=generator)
            self._table = ClassTable.full(directions / directions.norm(dim=1, keepdim=True))

    def update(self, uploads: Sequence[Upload], round: int) -> dict[str, float]:
        """Average as `Mean` does; the first update replaces all random directions."""
        if self.initial == "random" and round == 0:
            self._table = ClassTable.empty(*self._table.values.shape)
        return super().update(uploads, round)
