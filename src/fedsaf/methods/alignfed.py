"""AlignFed: fixed class targets, spread evenly over a sphere, guide every extractor; the light classifier is shared.

1. A client receives the targets V once, and the shared head at the start of each round.
2. It minimises CE + lambda_t L_con, the contrast of its features against V with tau = 1 (alignment ``alignfed``);
   lambda_t = 20 (2/20)^(t/T). In public code the softmax runs over the samples of the batch (D12).
3. It sends its head; its class means stay at home, since V never changes.
4. The server averages heads by samples.

Clients answer by the classifier, right after the shared head has replaced the local one.
Travels: V once, C d numbers; the head, C (d + 1), both ways. Source: public code.
The client side is `fedsaf.methods.prototype` with a shared head; here is the constructor.
Dimension letters: d feature dimension, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from fedsaf.core.checks import one_of, positive
from fedsaf.core.contracts import Aggregator
from fedsaf.core.seeding import torch_generator
from fedsaf.core.types import Message, ServerContext, Upload
from fedsaf.prototypes.class_table import ClassTable
from fedsaf.prototypes.sphere import BUILDERS


class Hypersphere(Aggregator):
    """Constructor whose prototypes exist for all classes before round 0 and never change.

    Args:
        builder: a key of `BUILDERS`, or ``auto``: ``etf`` where C <= d, else ``optimise``.
        radius: length of every prototype, > 0; matters for losses that see scale.

    Raises:
        ValueError: unknown builder, or a radius that is not positive.
    """

    needs_uploads = False

    def __init__(self, builder: str, radius: float) -> None:
        positive(radius=radius)
        self.builder, self.radius = one_of("builder", builder, ("auto", *BUILDERS)), radius

    def prepare(self, context: ServerContext) -> None:
        """Build the table from the seed; ValueError if the builder cannot place C classes in d dimensions."""
        C, d = context.num_classes, context.feature_dim
        name = ("etf" if d >= C else "optimise") if self.builder == "auto" else self.builder
        vectors = BUILDERS[name](C, d, torch_generator(context.seed, "prototypes/hypersphere"))
        self._values = (self.radius * vectors).float()

    def update(self, uploads: Sequence[Upload], round: int) -> dict[str, float]:
        """Change nothing; return ``num_prototypes`` = C."""
        return {"num_prototypes": float(len(self._values))}

    def broadcast(self) -> Message | None:
        """Return ``labels`` and ``values`` of all classes, the same in every round."""
        return ClassTable.full(self._values).to_message()

    def setup_message(self) -> Message | None:
        """Return the table: it has to travel once, ahead of the rounds, and never again."""
        return self.broadcast()

    def state(self) -> dict[str, Tensor]:
        """Return the table."""
        return {"values": self._values}
