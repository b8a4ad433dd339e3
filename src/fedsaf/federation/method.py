"""A method is data, not a class: terms, channels and the rule by which its clients answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedsaf.evaluation.predictors import Predictor
from fedsaf.exchange.channel import Channel
from fedsaf.exchange.hooks import LocalHook
from fedsaf.models.companions import Companion
from fedsaf.objective.objective import Objective


@dataclass(frozen=True)
class Method:
    """One federated algorithm.

    Attributes:
        name: as it appears in records and tables.
        reads: configuration groups whose choice this method uses; any other choice on the command line is refused.
        objective: what a client minimises.
        companions: builders of auxiliary models trained beside the client's own, by name.
        answer: how a client computes features and logits; None for its own model alone.
        hooks: what happens at a client beside losses and messages.
        channels: what travels, by name, in the order in which carriers are applied.
        predictors: prediction rules scored in the same pass, by name.
        predictor: the rule whose accuracy the method reports.
        diagnostics: analyses of what travels, by channel; each maps (uploads, broadcast) to numbers.
    """

    name: str
    reads: Sequence[str]
    objective: Objective
    companions: Mapping[str, Companion]
    answer: Callable[[Any, Any], tuple[Any, Any]] | None
    hooks: Sequence[LocalHook]
    channels: Mapping[str, Channel]
    predictors: Mapping[str, Predictor]
    predictor: str
    diagnostics: Mapping[str, Callable[..., dict[str, Any]]]

    def __post_init__(self) -> None:
        if self.predictor not in self.predictors:
            raise ValueError(
                f"method {self.name} reports {self.predictor!r}, but its prediction rules are "
                f"{', '.join(self.predictors)}"
            )
