"""FedSAF, Algorithm 1 with free choices: any alignment loss with any prototype constructor.

A round of a client, and of the server:

1. It receives the global prototypes P_g of the classes that have one; none before the first update.
2. It minimises CE + lambda L(P, P_g) + gamma L(Z, P_g), Eq. (19): P its class means of a batch (prototype level,
   Eq. (15)-(16)), Z its features (instance level, Eq. (17)-(18)), L the loss of the chosen alignment.
3. It sends its class means, Eq. (2), by default of the trained model (register entry D2).
4. The server constructs P_g from them: Eq. (3) for the mean, else the chosen constructor.

Travels: up |C_i| d numbers (and |C_i| counts if sample weighted), down C d of the classes that exist.
FedProto and FedSAF's four losses are this method with an alignment of their own, FedTGP with a constructor as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from fedsaf.core.checks import one_of
from fedsaf.core.contracts import Aggregator, Batches, Client, ClientChannel
from fedsaf.core.types import Message, StepView
from fedsaf.evaluation.diagnostics import PrototypeDiagnostics
from fedsaf.evaluation.predictors import Classifier, NearestPrototype
from fedsaf.federation.method import Channel, Method
from fedsaf.losses.objective import Objective, Weighted
from fedsaf.losses.terms import CrossEntropy
from fedsaf.losses.two_level import InstanceLevel, PrototypeLevel, UniformityTerm
from fedsaf.methods.averaging import averaged
from fedsaf.prototypes.class_means import ClassMeans
from fedsaf.prototypes.class_table import ClassTable

COLLECTIONS = ("clean", "running_all", "running_last", "stale")
UNCOUNTED = ("labels", "seen")
"""Row labels, and which classes were ever uploaded, cost nothing, as in the published tables."""
SHARED = {"head": "one_head", "backbone": "one_architecture"}
"""What else may be averaged, and what it requires of the model group."""


class PrototypeChannel(ClientChannel):
    """Local prototypes up, global prototypes down.

    A class that no sample showed (absent, or only in dropped batches) is not uploaded.

    Args:
        channel: name under which the received `ClassTable` appears in the client's ``received``.
        collect: ``clean`` averages the features of a pass in evaluation mode after training; ``running_all`` those met
            in training mode during all local epochs of the round, ``running_last`` during the last one; ``stale`` those
            of an evaluation pass *before* training (register entry D2).
    """

    def __init__(self, channel: str, collect: str) -> None:
        self.channel, self.collect = channel, one_of("collect", collect, COLLECTIONS)

    def receive(self, client: Client, message: Message | None) -> None:
        """Scatter the rows that exist into a (C, d) table; None clears it."""
        client.received.pop(self.channel, None)
        if message is not None:
            client.received[self.channel] = ClassTable.from_message(message, client.num_classes, client.device)

    def on_train_start(self, client: Client, batches: Batches) -> None:
        """Start the running sums, or take the stale means now."""
        means = ClassMeans(client.num_classes, client.feature_dim)
        if self.collect == "stale":
            means = evaluated_means(client, batches, client.feature_dim)
        client.scratch[self.channel] = means

    def on_train_batch_end(self, client: Client, step: StepView, epoch: int, epochs: int) -> None:
        """Add the features of one training step to the running sums, if they are wanted."""
        if self.collect == "running_all" or (self.collect == "running_last" and epoch == epochs - 1):
            client.scratch[self.channel].add(step.z, step.y)

    def send(self, client: Client, batches: Batches) -> Message:
        """Return ``labels`` (K,), ``values`` (K, d) and ``counts`` (K,) of the classes this client saw."""
        means = client.scratch.pop(self.channel)
        if self.collect == "clean":
            means = evaluated_means(client, batches, client.feature_dim)
        return means.compute().to_message()


def evaluated_means(
    client: Client, batches: Batches, width: int, rows_of: Callable[[Tensor, Tensor], Tensor] = lambda z, logits: z
) -> ClassMeans:
    """Return the class means of one pass over a client's training part, in evaluation mode and without gradient.

    Args:
        client: left in evaluation mode.
        batches: the pass.
        width: w.
        rows_of: (z (B, d), logits (B, C)) -> (B, w), what is averaged.
    """
    means = ClassMeans(client.num_classes, width)
    client.eval()
    with torch.inference_mode():
        for x, y in batches:
            means.add(rows_of(*client(x)), y)
    return means


def alignment_terms(alignment: Mapping[str, Any]) -> dict[str, Weighted]:
    """Return both levels and the uniformity part of the contrastive loss, under their names in the records.

    Args:
        alignment: a choice of ``conf/alignment``, its losses built.
    """
    missing, schedule = alignment["missing_rows"], alignment["weight_schedule"]
    return {
        "prototype_alignment": Weighted(
            PrototypeLevel(alignment["loss"], missing), alignment["proto_weight"], schedule
        ),
        "instance_alignment": Weighted(
            InstanceLevel(alignment["inst_loss"], missing), alignment["inst_weight"], schedule
        ),
        "uniformity": Weighted(UniformityTerm(alignment["temperature"]), alignment["uniformity_weight"]),
    }


def prototype(
    name: str,
    alignment: Mapping[str, Any],
    constructor: Aggregator,
    collect: str,
    predictor: str,
    extra_terms: Mapping[str, Weighted],
    share: str | None,
    parameter_weighting: str,
    bn_buffers: str,
) -> Method:
    """Wire the method.

    Args:
        name: as it appears in records.
        alignment: see `alignment_terms`.
        constructor: server half of the prototypes channel.
        collect: see `PrototypeChannel`.
        predictor: the rule whose accuracy is reported, ``classifier`` or ``nearest_prototype``; both are recorded.
        extra_terms: further terms of the objective, by name.
        share: ``head`` or ``backbone``, a part of the clients that is averaged in every round; None for none.
        parameter_weighting: of ``share``, see `fedsaf.methods.averaging.ParameterMean`.
        bn_buffers: of ``share``, see `fedsaf.methods.averaging.ParameterChannel`.
    """
    terms = {"cross_entropy": Weighted(CrossEntropy()), **alignment_terms(alignment), **extra_terms}
    shared = {} if share is None else {one_of("share", share, SHARED): averaged(share, parameter_weighting, bn_buffers)}
    return Method(
        name=name,
        requires=[SHARED[scope] for scope in shared],
        objective=Objective(terms),
        channels={"prototypes": Channel(PrototypeChannel("prototypes", collect), constructor, UNCOUNTED), **shared},
        predictors={"classifier": Classifier(), "nearest_prototype": NearestPrototype("prototypes")},
        predictor=predictor,
        diagnostics={"prototypes": PrototypeDiagnostics()},
    )
