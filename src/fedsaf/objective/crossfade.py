"""Two terms that share one weight: one fades over the rounds, the other takes what it leaves, FedProc Eq. (6)."""

from __future__ import annotations

from torch import Tensor

from fedsaf.core.contracts import Term
from fedsaf.core.types import StepView
from fedsaf.losses.schedules import scheduled_weight


class CrossFade:
    """``a_t contrastive + (1 - a_t) cross_entropy``, an objective.

    Args:
        contrastive: the term with weight a_t.
        cross_entropy: the term with weight 1 - a_t.
        schedule: of a over rounds: ``linear_decay`` is the paper's a_t = 1 - t/T, with weight 1; ``linear_growth``
            reverses it; ``constant`` is a fixed mixture.
        weight: a before the schedule, in [0, 1]; 0 is cross-entropy alone, 1 and constant the contrastive term alone.
        horizon: rounds after which a linear schedule has arrived; None for T. Public code of FedProc has 100.

    A step in which the contrastive term has nothing to act on (before any prototype, or no class of the batch has one)
    is trained on cross-entropy alone, with weight 1. A term of weight 0 is not computed.
    """

    def __init__(
        self, contrastive: Term, cross_entropy: Term, schedule: str, weight: float, horizon: int | None
    ) -> None:
        if not 0 <= weight <= 1:
            raise ValueError(f"the weight of the contrastive term is {weight}; expected a share in [0, 1]")
        if horizon is not None and horizon < 1:
            raise ValueError(f"horizon is {horizon}; expected a number of rounds >= 1, or null for all of them")
        scheduled_weight(schedule, weight, 0, 1)
        self.contrastive, self.cross_entropy = contrastive, cross_entropy
        self.schedule, self.weight, self.horizon = schedule, weight, horizon

    def share(self, t: int, rounds: int) -> float:
        """Return a_t, in [0, 1].

        >>> fade = CrossFade(None, None, "linear_decay", 1.0, None)
        >>> [fade.share(t, 4) for t in range(4)]
        [1.0, 0.75, 0.5, 0.25]
        """
        horizon = self.horizon or rounds
        return scheduled_weight(self.schedule, self.weight, min(t, horizon), horizon)

    def __call__(self, view: StepView) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mixture and the unweighted value of each term that was computed."""
        share = self.share(view.round, view.rounds)
        values: dict[str, Tensor] = {}
        if share > 0:
            values["contrastive"] = self.contrastive(view)
            if not values["contrastive"].requires_grad:
                share = 0.0
        if share < 1:
            values["cross_entropy"] = self.cross_entropy(view)
        if share == 0:
            return values["cross_entropy"], values
        if share == 1:
            return values["contrastive"], values
        return share * values["contrastive"] + (1 - share) * values["cross_entropy"], values
