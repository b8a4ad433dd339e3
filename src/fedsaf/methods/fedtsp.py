"""FedTSP: class vectors T from text carry relations between classes, which no weak client feature can spoil.

1. A client receives T of every class and the scale s, from round 0 on.
2. It minimises CE + 7 CE(e^s cos(z, T^c), y), s and T fixed.
3. It sends its class means of the trained model.
4. The server trains T (an offset or context tokens, by source) and s towards the plain mean of each uploaded class.

Clients answer by their classifier. Travels: up |C_i| d numbers, down C d + 1.
Faithful with source ``encoder`` (a local CLIP or BERT folder and written descriptions) or ``file`` with vectors from
one; ``lexical`` and ``random`` are "FedTSP-style, no pretrained encoder" and reproduce nothing that was published,
so the method's name carries the source.
Source: public code. Deviation: classes without upload have no row in the server's loss (public code needs them all).
Dimension letters: B batch, v width of the text vectors, d feature dimension, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsaf.core.checks import one_of, positive
from fedsaf.core.contracts import Aggregator, Client, restore
from fedsaf.core.seeding import seeded, torch_generator
from fedsaf.core.types import Message, ServerContext, StepView, Upload
from fedsaf.federation.method import Method
from fedsaf.losses.objective import Weighted
from fedsaf.methods.prototype import PrototypeChannel, prototype
from fedsaf.prototypes.class_means import class_means
from fedsaf.prototypes.class_table import ClassTable, uploaded_pairs
from fedsaf.prototypes.sphere import semi_orthogonal
from fedsaf.prototypes.text_sources import SOURCES, TextSettings

SCALE = "prototypes.scale"
"""Where s stands in a client's ``received``."""


class TextChannel(PrototypeChannel):
    """A prototype channel that also unpacks s."""

    def receive(self, client: Client, message: Message | None) -> None:
        """Unpack table and scale.

        Raises:
            ValueError: the constructor of this channel sends no scale.
        """
        super().receive(client, message)
        if message is None or "scale" not in message:
            raise ValueError(
                f"channel {self.channel!r} brings no scale of cosines; fedtsp needs a constructor that trains one, "
                "such as prototype=text_prior"
            )
        client.received[SCALE] = message["scale"].to(client.device)


def scaled_cosine_loss(P: Tensor, labels: Tensor, table: Tensor, log_scale: Tensor) -> Tensor:
    """Cross-entropy of ``e^s cos(P_a, T^c)`` over all classes c against the label of each row, mean over the rows.

    Args:
        P: (n, d).
        labels: (n,).
        table: (C, d) class vectors T.
        log_scale: s, one number.

    >>> scaled_cosine_loss(torch.eye(2), torch.tensor([0, 1]), torch.eye(2), torch.tensor(0.0))  # log(e + 1) - 1
    tensor(0.3133)
    """
    cosines = F.normalize(P, dim=1, eps=1e-8) @ F.normalize(table, dim=1, eps=1e-8).T
    return F.cross_entropy(log_scale.exp() * cosines, labels)


class TextContrast:
    """The client term: ``CE(e^s cos(z_j, T^c), y_j)`` over all classes, s and T fixed."""

    def __call__(self, view: StepView) -> Tensor:
        """Return a scalar >= 0 in float32 whatever the precision of z."""
        with torch.autocast(view.z.device.type, enabled=False):
            table, scale = view.received["prototypes"].values, view.received[SCALE]
            return scaled_cosine_loss(view.z.float(), view.y, table, scale)


class TextPrior(Aggregator):
    """Prototypes T^c from text, trained each round towards the mean uploaded prototype of each class.

    Every class has a vector from round 0. A round takes ``steps`` steps of plain SGD on `scaled_cosine_loss` of the
    uniform means of the uploads against the whole table; classes without upload have no row and are negatives only.
    What learns is the scale s and, by source, an offset per class (``file``, ``lexical``, ``random``) or context tokens
    per class (``encoder``). A width v other than d is brought to d by a fixed orthogonal map.

    Args:
        source: a key of `SOURCES`.
        path: see `TextSettings`.
        descriptions: see `TextSettings`.
        template: see `TextSettings`.
        num_context: see `TextSettings`.
        steps: server steps per round.
        lr: learning rate of plain SGD.
        log_scale: initial s.

    Raises:
        ValueError: unknown source, an argument the source does not read, or a number out of range.
    """

    def __init__(
        self,
        source: str,
        path: str | None,
        descriptions: str | None,
        template: str,
        num_context: int,
        steps: int,
        lr: float,
        log_scale: float,
    ) -> None:
        one_of("source", source, SOURCES)
        if path is not None and source not in ("file", "encoder"):
            raise ValueError(f"path={path!r} is read by sources 'file' and 'encoder', not by {source!r}")
        if descriptions is not None and source not in ("lexical", "encoder"):
            raise ValueError(f"descriptions={descriptions!r} is read by 'lexical' and 'encoder', not by {source!r}")
        positive(steps=steps, lr=lr)
        self.source, self.settings = source, TextSettings(path, descriptions, template, num_context)
        self.steps, self.lr, self.log_scale = steps, lr, log_scale

    def prepare(self, context: ServerContext) -> None:
        """Build the source; what is drawn, is drawn from the seed.

        Raises:
            ValueError: the source lacks something.
        """
        with seeded(context.seed, "prototypes/text_prior/init"):
            self._source = SOURCES[self.source](context, self.settings)
        width, d = self._source.prior.shape[1], context.feature_dim
        generator = torch_generator(context.seed, "prototypes/text_prior/projection")
        self._projection = None if width == d else semi_orthogonal(width, d, generator)
        self._scale = nn.Parameter(torch.tensor([self.log_scale]))
        self._learn = {n: p for n, p in self._source.named_parameters() if p.requires_grad}
        self._seen = torch.zeros(context.num_classes, dtype=torch.bool)
        self._shape = (context.num_classes, d)

    def _table(self) -> Tensor:
        vectors = self._source()
        return vectors if self._projection is None else vectors @ self._projection

    @torch.enable_grad()
    def update(self, uploads: Sequence[Upload], round: int) -> dict[str, float]:
        """Train towards the uploads of one round; without any pair nothing happens.

        Returns:
            ``num_prototypes`` and ``scale``, e^s; with pairs also ``loss`` before the last step.

        Raises:
            ValueError: malformed message.
            FloatingPointError: NaN or Inf in the values, or a training that diverges.
        """
        labels, values, _ = uploaded_pairs(uploads, *self._shape)
        metrics = {}
        if len(labels):
            targets = class_means(values.double(), labels, self._shape[0])
            optimizer = torch.optim.SGD([*self._learn.values(), self._scale], lr=self.lr)
            for _ in range(self.steps):
                loss = scaled_cosine_loss(targets.rows.float(), targets.labels, self._table(), self._scale)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            metrics["loss"] = loss.item()
            if not math.isfinite(metrics["loss"]):
                raise FloatingPointError(f"the training of text prototypes diverged: loss {metrics['loss']}")
            self._seen[labels] = True
        return {"num_prototypes": float(self._shape[0]), "scale": self._scale.exp().item(), **metrics}

    @torch.no_grad()
    def broadcast(self) -> Message | None:
        """Return all classes, with ``seen``, and ``scale`` (1,), which is s; in round 0 too."""
        return ClassTable.full(self._table(), self._seen).to_message() | {"scale": self._scale.detach().clone()}

    def state(self) -> dict[str, Tensor]:
        """Return what learns, the classes ever uploaded, and the untrained class vectors, for comparison."""
        return {"prior": self._source.prior, "seen": self._seen, "log_scale": self._scale, **self._learn}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state_dict` returned.

        Raises:
            ValueError: anything else, or a state that was trained on another text source.
        """
        expected = self._source.prior.clone()
        restore("TextPrior", self.state(), state)
        if not torch.allclose(state["prior"], expected, rtol=1e-3, atol=1e-4):
            raise ValueError(f"the text source {self.source!r} gives other class vectors than it did for this state")


def fedtsp(text_weight: float, extra_terms: Mapping[str, Weighted], **rest: Any) -> Method:
    """Wire the method.

    Args:
        text_weight: lambda_p, of `TextContrast`.
        extra_terms: further terms of the objective, by name.
        rest: of `fedsaf.methods.prototype.prototype`; its constructor must send a scale, as `TextPrior` does.
    """
    method = prototype(extra_terms={"text_contrast": Weighted(TextContrast(), text_weight), **extra_terms}, **rest)
    channel = replace(method.channels["prototypes"], client=TextChannel("prototypes", rest["collect"]))
    return replace(method, channels={**method.channels, "prototypes": channel})
