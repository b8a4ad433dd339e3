"""Contrastive losses: rows against a whole table of class vectors, by cosine or by distance.

All run in float32 (float64 for float64 rows) whatever the autocast. Losses by cosine take P (n, d) rows of the client
with gradient, their labels (n,), the table of global prototypes, which never gets a gradient, and a temperature > 0.
They return a scalar, a constant 0 without graph if no row has a prototype of its class, and raise FloatingPointError
for NaN or Inf in the inputs. Zero rows have cosine 0 with everything and get no gradient.
Dimension letters: n rows, d feature dimension, C classes; M is the set of classes that have a prototype.
"""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn import functional as F

from fedsaf.losses.coordinate import COSINE_FLOOR, SQUARE_FLOOR
from fedsaf.losses.numerics import checked, full_precision, inactive, unit_rows
from fedsaf.prototypes.class_table import ClassTable


@full_precision
def contrastive(
    P: Tensor, labels: Tensor, table: ClassTable, temperature: float, double_positive: bool = False
) -> Tensor:
    """InfoNCE against class prototypes: Eq. (20)-(21) of FedSAF; with temperature 1, Eq. (4) of FedProc.

    ``-s_y + log sum_{c in M} exp(s_c)`` with ``s_c = cos(P_a, P_g^c) / temperature``, mean over the rows with y in M;
    a scalar >= 0. With ``double_positive`` the positive counts twice in the sum, as Algorithm 1 of FedProc read
    literally has it.

    >>> import torch
    >>> table = ClassTable.full(torch.eye(2))
    >>> contrastive(torch.eye(2)[:1], torch.tensor([0]), table, 1.0)  # log(e + 1) - 1
    tensor(0.3133)
    """
    known = table.mask[labels]
    if not known.any():
        return inactive(P)
    similarity = _similarity(P, table, temperature)
    positive = similarity.gather(1, labels[:, None]).squeeze(1)
    contrast = _log_partition(similarity, table)
    if double_positive:
        contrast = contrast.logaddexp(positive)
    return checked("contrastive", _mean_over(known, contrast - positive))


@full_precision
def uniformity(P: Tensor, labels: Tensor, table: ClassTable, temperature: float) -> Tensor:
    """The second part of the contrastive loss alone: ``log sum_{c in M} exp(s_c)``, mean over the rows with y in M.

    It pushes rows away from all prototypes, their own included, and may accompany any other loss (FedSAF, Sec. V-A).
    """
    known = table.mask[labels]
    if not known.any():
        return inactive(P)
    return checked("uniformity", _mean_over(known, _log_partition(_similarity(P, table, temperature), table)))


@full_precision
def batch_contrastive(P: Tensor, labels: Tensor, table: ClassTable, temperature: float) -> Tensor:
    """Contrast over the rows of the batch instead of over classes, as public code of AlignFed does.

    ``l_c = -mean_{a: y_a = c} (s_ac - log sum_{a'} exp(s_a'c))``; the loss is the sum of l_c over classes divided by C,
    a class without rows or without prototype contributing 0. A scalar >= 0, exactly 0 for one row.
    """
    known = table.mask[labels]
    if not known.any():
        return inactive(P)
    scores = _similarity(P, table, temperature).log_softmax(dim=0).gather(1, labels[:, None]).squeeze(1)
    rows_of_class = (labels[:, None] == labels).sum(dim=1)
    return checked("batch_contrastive", -(scores * known / rows_of_class).sum() / len(table.mask))


def margin_contrastive(P: Tensor, labels: Tensor, prototypes: Tensor, margin: float) -> Tensor:
    """Margin-enhanced contrastive loss of FedTGP, mean over the rows.

    Cross-entropy of the logits ``-(|P_a - P_g^c| + margin [c = y_a])``: the distance to the own prototype must be
    smaller than every other by the margin.

    Args:
        P: (n, d) rows.
        labels: (n,) their classes.
        prototypes: (C, d), which may get a gradient.
        margin: >= 0.

    Returns:
        Scalar > 0. A distance below 1e-6 counts as 0 and has gradient 0, since the slope of the root is infinite there.

    >>> import torch
    >>> margin_contrastive(torch.tensor([[0.0]]), torch.tensor([0]), torch.tensor([[0.0], [0.0]]), 0.0)
    tensor(0.6931)
    """
    squares = P.square().sum(dim=1, keepdim=True) + prototypes.square().sum(dim=1) - 2 * P @ prototypes.T
    distances = squares.clamp_min(SQUARE_FLOOR).sqrt() * (squares > SQUARE_FLOOR)
    return F.cross_entropy(-(distances + margin * F.one_hot(labels, len(prototypes))), labels)


def _similarity(P: Tensor, table: ClassTable, temperature: float) -> Tensor:
    prototypes = unit_rows(table.values.detach().to(P.dtype), COSINE_FLOOR)
    return unit_rows(P, COSINE_FLOOR) @ prototypes.T / temperature


def _log_partition(similarity: Tensor, table: ClassTable) -> Tensor:
    return similarity.masked_fill(~table.mask, -math.inf).logsumexp(dim=1)


def _mean_over(known: Tensor, values: Tensor) -> Tensor:
    return (values * known).sum() / known.sum()
