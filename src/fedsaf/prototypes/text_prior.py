"""Class vectors from text that adapt to the vision prototypes of the federation: the server side of FedTSP.

Dimension letters: K uploaded classes of a round, v width of the text vectors, d feature dimension, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsaf.core.contracts import Aggregator, restore
from fedsaf.core.seeding import seeded, torch_generator
from fedsaf.core.types import Message, ServerContext, Upload
from fedsaf.prototypes.class_means import class_means
from fedsaf.prototypes.class_table import ClassTable, uploaded_pairs
from fedsaf.prototypes.projection import semi_orthogonal
from fedsaf.prototypes.text_sources import SOURCES, TextSettings

NORM_FLOOR = 1e-8


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
    cosines = F.normalize(P, dim=1, eps=NORM_FLOOR) @ F.normalize(table, dim=1, eps=NORM_FLOOR).T
    return F.cross_entropy(log_scale.exp() * cosines, labels)


class TextPrior(Aggregator):
    """Prototypes T^c from text, trained each round towards the mean uploaded prototype of each class.

    Every class has a vector from round 0. A round takes ``steps`` steps of plain SGD on `scaled_cosine_loss` of the
    uniform means of the uploads against the whole table; classes without upload have no row and are negatives only.
    What learns is the scale s and, by source, an offset per class (``file``, ``lexical``, ``random``) or context tokens
    per class (``encoder``). A width v other than d is brought to d by a fixed orthogonal map.

    Only ``encoder``, and ``file`` with vectors of a pretrained encoder, carry what words mean. Results of ``lexical``
    and ``random`` are "FedTSP-style, no pretrained encoder" and reproduce nothing that was published.

    Attributes:
        needs_counts: False.
        needs_uploads: True.
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
        """Choose source and training.

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
        if source not in SOURCES:
            raise ValueError(f"source must be one of {list(SOURCES)}, got {source!r}")
        if path is not None and source not in ("file", "encoder"):
            raise ValueError(f"path={path!r} is read by sources 'file' and 'encoder', not by {source!r}")
        if descriptions is not None and source not in ("lexical", "encoder"):
            raise ValueError(f"descriptions={descriptions!r} is read by 'lexical' and 'encoder', not by {source!r}")
        for name, value in {"steps": steps, "lr": lr}.items():
            if not value > 0:
                raise ValueError(f"{name} must be positive, got {value}")
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
        """Train towards the uploads of one round.

        Args:
            uploads: messages with ``labels`` (K,) and ``values`` (K, d); K may be 0. Without any pair nothing happens.
            round: not used.

        Returns:
            ``num_prototypes`` and ``scale``, e^s; with pairs also ``loss`` before the last step.

        Raises:
            ValueError: malformed message.
            FloatingPointError: NaN or Inf in the values, or a training that diverges.
        """
        labels, means, _ = uploaded_pairs(uploads, *self._shape)
        metrics = {}
        if len(labels):
            targets = class_means(means.double(), labels, self._shape[0])
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
        """Return ``labels``, ``values``, ``seen`` of all classes and ``scale`` (1,), which is s; in round 0 too."""
        message = ClassTable.full(self._table(), self._seen).to_message()
        return message | {"scale": self._scale.detach().clone()}

    def state_dict(self) -> dict[str, Tensor]:
        """Return what learns, the classes ever uploaded, and the untrained class vectors, for comparison."""
        return {name: tensor.detach().clone() for name, tensor in self._state().items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what ``state_dict`` returned.

        Raises:
            ValueError: anything else, or a state that was trained on another text source.
        """
        expected = self._source.prior.clone()
        restore("TextPrior", self._state(), state)
        if not torch.allclose(state["prior"], expected, rtol=1e-3, atol=1e-4):
            raise ValueError(f"the text source {self.source!r} gives other class vectors than it did for this state")

    def _state(self) -> dict[str, Tensor]:
        return {"prior": self._source.prior, "seen": self._seen, "log_scale": self._scale, **self._learn}
