"""A method is data, not a class: terms, channels and the rule by which its clients answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedsaf.core.contracts import (
    Aggregator,
    AuxiliaryModel,
    Batches,
    Callback,
    Client,
    ClientChannel,
    ForwardRule,
    Predictor,
)
from fedsaf.core.types import Message
from fedsaf.evaluation.predictors import Classifier
from fedsaf.losses.objective import Objective
from fedsaf.models.groups import ModelGroup

_NEEDS = {
    "one_architecture": (
        "architectures",
        "it averages whole models, so every client needs the same one; take model_group=homogeneous",
    ),
    "one_head": (
        "heads",
        "it averages classifiers, so every client needs one of the same shape; take an HtFE group such as htfe4",
    ),
}
"""Requirement to (attribute of the model group that may have one value only, reason)."""


@dataclass(frozen=True)
class Channel:
    """Client half and server half of a channel, and which parts of its messages cost nothing.

    Attributes:
        client: client half.
        aggregator: server half.
        uncounted: names of message parts left out of the byte count, such as the row labels of prototypes, which the
            published tables do not count either.
        free_uploads: whether what goes up has gone up over another channel already, and so costs nothing here.
    """

    client: ClientChannel
    aggregator: Aggregator
    uncounted: Sequence[str] = ()
    free_uploads: bool = False

    def send(self, client: Client, batches: Batches) -> Message:
        """Return what the client half sends, less what the aggregator does not read."""
        if not self.aggregator.needs_uploads:
            return {}
        message = self.client.send(client, batches)
        if not self.aggregator.needs_counts:
            message.pop("counts", None)
        return message

    def num_bytes(self, message: Message | None) -> int:
        """Return the payload size in bytes: elements times element size over the counted parts; 0 for None."""
        if message is None:
            return 0
        return sum(
            part.numel() * part.element_size() for name, part in message.items() if name not in tuple(self.uncounted)
        )


@dataclass(frozen=True)
class Method:
    """One federated algorithm.

    Attributes:
        name: as it appears in records and tables.
        objective: what a client minimises.
        requires: what the model group must be like: ``one_architecture`` (whole models are averaged), ``one_head``
            (heads are averaged); empty if any group will do.
        auxiliary: builders of auxiliary models trained beside the client's own, by name.
        forward_rule: how a client computes its outputs; None for its own model alone.
        callbacks: what happens at a client beside losses and messages.
        channels: what travels, by name, in the order in which channels are applied.
        predictors: prediction rules scored in the same pass, by name.
        predictor: the rule whose accuracy the method reports.
        diagnostics: analyses of what travels, by channel; each maps (uploads, broadcast) to numbers.
    """

    name: str
    objective: Objective
    requires: Sequence[str] = ()
    auxiliary: Mapping[str, AuxiliaryModel] = field(default_factory=dict)
    forward_rule: ForwardRule | None = None
    callbacks: Sequence[Callback] = ()
    channels: Mapping[str, Channel] = field(default_factory=dict)
    predictors: Mapping[str, Predictor] = field(default_factory=lambda: {"classifier": Classifier()})
    predictor: str = "classifier"
    diagnostics: Mapping[str, Callable[..., dict[str, Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.predictor not in self.predictors:
            raise ValueError(
                f"method {self.name} reports {self.predictor!r}, but its prediction rules are "
                f"{', '.join(self.predictors)}"
            )

    def check(self, group: ModelGroup) -> None:
        """Refuse a model group that this method cannot run on.

        Raises:
            ValueError: with the reason and what to choose instead.
        """
        for need in self.requires:
            if need not in _NEEDS:
                raise ValueError(f"method {self.name} requires {need!r}; known requirements: {', '.join(_NEEDS)}")
            attribute, reason = _NEEDS[need]
            found = sorted(set(getattr(group, attribute)))
            if len(found) > 1:
                raise ValueError(
                    f"method={self.name} cannot run on model group {group.name} ({', '.join(found)}): {reason}"
                )
