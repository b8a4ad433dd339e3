"""FedProc (Mu et al., FGCS 2023), Algorithm 1: FedAvg with a contrastive pull to class prototypes that fades out.

0. Before round 0 all clients send the class means under the initial model once (or ``initial`` says otherwise).
1. A client receives the model and the global prototypes, and trains against these prototypes all round.
2. It minimises a_t L_gpc + (1 - a_t) CE, Eq. (6), a_t = 1 - t/T, with the contrastive L_gpc of Eq. (4) on z.
3. It sends its model and its class means of z, in evaluation mode and without augmentation.
4. The server averages models by samples, and means uniformly over their holders.

Travels: model and C Q numbers down, model and |C_i| Q up.
Register: D5; D20, whose public side scales z to length 1 before the classifier, weights prototypes by samples, reaches
cross-entropy after 100 rounds whatever T is, and has no prototypes in round 0. Public code also normalises model
weights over absent clients, which is not reproduced.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedsaf.core.checks import one_of
from fedsaf.core.contracts import Batches, Callback, Client, Outputs, Term
from fedsaf.core.seeding import torch_generator
from fedsaf.core.types import ServerContext, StepView, Upload
from fedsaf.evaluation.diagnostics import PrototypeDiagnostics
from fedsaf.evaluation.predictors import Classifier, NearestPrototype
from fedsaf.federation.method import Channel, Method
from fedsaf.losses.alignment import Contrastive
from fedsaf.losses.coordinate import COSINE_FLOOR
from fedsaf.losses.numerics import unit_rows
from fedsaf.losses.schedules import scheduled_weight
from fedsaf.losses.terms import CrossEntropy
from fedsaf.losses.two_level import InstanceLevel
from fedsaf.methods.averaging import averaged
from fedsaf.methods.prototype import UNCOUNTED, PrototypeChannel, evaluated_means
from fedsaf.prototypes.class_table import ClassTable
from fedsaf.prototypes.mean import Mean


class OwnTargets(Callback):
    """Algorithm 1, line 18, read literally: a client trains against its class means under the received model."""

    def on_train_start(self, client: Client, batches: Batches) -> None:
        """Replace the received table for this round."""
        own = evaluated_means(client, batches, client.feature_dim).compute()
        client.received["prototypes"] = ClassTable(own.values.to(client.device), own.mask.to(client.device))


class UnitFeatures:
    """Forward rule of the public code: z is scaled to length 1, a zero row staying zero, before the classifier."""

    def __call__(self, client: Client, x: Tensor) -> Outputs:
        """Return z (B, d) and logits (B, C)."""
        z = unit_rows(client.model.features(x), COSINE_FLOOR)
        return Outputs(z, client.model.head(z))


class CrossFade:
    """``a_t contrastive + (1 - a_t) cross_entropy``, Eq. (6), an objective.

    A step in which the contrastive term has nothing to act on (before any prototype, or no class of the batch has one)
    is trained on cross-entropy alone, with weight 1. A term of weight 0 is not computed.

    Args:
        contrastive: the term with weight a_t.
        cross_entropy: the term with weight 1 - a_t.
        schedule: of a over rounds: ``linear_decay`` is the paper's a_t = 1 - t/T, with weight 1; ``linear_growth``
            reverses it; ``constant`` is a fixed mixture.
        weight: a before the schedule, in [0, 1]; 0 is cross-entropy alone, 1 and constant the contrastive term alone.
        horizon: rounds after which a linear schedule has arrived; None for T.
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


class StartedMean(Mean):
    """`Mean` that may have prototypes in round 0 already; a class absent from a round keeps its own.

    Args:
        weighting: see `Mean`.
        initial: ``exchange`` averages the class means of all clients under the initial model, at the cost of one
            exchange; ``random`` draws a unit vector for each class, used in round 0 and forgotten at the first update,
            so that a class that nobody has uploaded has none; ``none`` starts without prototypes.
    """

    def __init__(self, weighting: str, initial: str) -> None:
        super().__init__(weighting, absent="keep")
        self.initial = one_of("initial", initial, ("exchange", "random", "none"))
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


def fedproc(
    name: str,
    schedule: str,
    weight: float,
    horizon: int | None,
    double_positive: bool,
    targets: str,
    unit_features: bool,
    prototype_weighting: str,
    initial: str,
    parameter_weighting: str,
    bn_buffers: str,
) -> Method:
    """Wire the method.

    Args:
        name: as it appears in records.
        schedule: see `CrossFade`.
        weight: see `CrossFade`.
        horizon: see `CrossFade`.
        double_positive: whether the positive counts twice in the sum of Eq. (4): Algorithm 1 read literally.
        targets: ``global``, the received prototypes; ``own``, see `OwnTargets`.
        unit_features: whether `UnitFeatures` holds.
        prototype_weighting: see `StartedMean`.
        initial: see `StartedMean`.
        parameter_weighting: see `fedsaf.methods.averaging.ParameterMean`.
        bn_buffers: see `fedsaf.methods.averaging.ParameterChannel`.
    """
    contrastive = InstanceLevel(Contrastive(1.0, double_positive, "class"), missing_rows="skip")  # Eq. (4) has no tau
    own = one_of("targets", targets, ("global", "own")) == "own"
    constructor = StartedMean(prototype_weighting, initial)
    return Method(
        name=name,
        requires=["one_architecture", "one_head"],
        objective=CrossFade(contrastive, CrossEntropy(), schedule, weight, horizon),
        forward_rule=UnitFeatures() if unit_features else None,
        callbacks=[OwnTargets()] if own else [],
        channels={
            "parameters": averaged("all", parameter_weighting, bn_buffers),
            "prototypes": Channel(PrototypeChannel("prototypes", "clean"), constructor, UNCOUNTED),
        },
        predictors={"classifier": Classifier(), "nearest_prototype": NearestPrototype("prototypes")},
        diagnostics={"prototypes": PrototypeDiagnostics()},
    )
