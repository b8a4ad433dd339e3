"""The training objective of one step: a named, weighted sum of terms, FedSAF Eq. (19)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from fedsaf.core.contracts import Term
from fedsaf.core.types import StepView
from fedsaf.losses.schedules import Schedule, scheduled_weight
from fedsaf.losses.terms import CrossEntropy


@dataclass(frozen=True)
class Weighted:
    """A term, its weight and the weight's schedule over rounds.

    Attributes:
        term: the loss term.
        weight: >= 0; a term of weight 0 is never computed, so that it cannot change a bit of the result.
        schedule: a name of `fedsaf.losses.schedules.SCHEDULES`, or an object such as `Geometric` there.
    """

    term: Term
    weight: float = 1.0
    schedule: str | Schedule = "constant"

    def __post_init__(self) -> None:
        if not self.weight >= 0 or self.weight == float("inf"):
            raise ValueError(
                f"the weight of {type(self.term).__name__} is {self.weight}; expected a finite number >= 0"
            )
        scheduled_weight(self.schedule, self.weight, 0, 1)


class Objective:
    """Sum of weighted terms.

    Args:
        terms: name to `Weighted`; the names appear in the records as they are.
    """

    def __init__(self, terms: Mapping[str, Weighted]) -> None:
        self.terms = dict(terms)

    def __call__(self, view: StepView) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the weighted sum and the unweighted value of each term that was computed.

        Raises:
            RuntimeError: if no term contributes a gradient, since the step would then train nothing.
        """
        total: Tensor | None = None
        values: dict[str, Tensor] = {}
        for name, weighted in self.terms.items():
            weight = scheduled_weight(weighted.schedule, weighted.weight, view.round, view.rounds)
            if weight == 0:
                continue
            value = weighted.term(view)
            values[name] = value
            if value.requires_grad:
                part = value if weight == 1 else weight * value
                total = part if total is None else total + part
        if total is None:
            raise RuntimeError(f"none of the terms {sorted(self.terms)} contributes a gradient in round {view.round}")
        return total, values


def objective(cross_entropy: float = 1.0, **terms: tuple[Term, float]) -> Objective:
    """Return the weighted sum of the cross-entropy and further terms, each (term, weight), constant over rounds."""
    weighted = {name: Weighted(*pair) for name, pair in terms.items()}
    return Objective({"cross_entropy": Weighted(CrossEntropy(), cross_entropy)} | weighted)
