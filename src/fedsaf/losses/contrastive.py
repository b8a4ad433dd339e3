"""Contrastive losses: rows against the whole table of global prototypes, by cosine.

All run in float32 (float64 for float64 rows) whatever the autocast. The table never gets a gradient. Zero rows have
cosine 0 with everything and get no gradient.
Dimension letters: n rows, d feature dimension, C classes; M is the set of classes that have a prototype.
"""

from __future__ import annotations

import math

from torch import Tensor

from fedsaf.losses.coordinate import COSINE_FLOOR
from fedsaf.losses.numerics import checked, full_precision, inactive, unit_rows
from fedsaf.prototypes.class_table import ClassTable


@full_precision
def contrastive(
    P: Tensor, labels: Tensor, table: ClassTable, temperature: float, double_positive: bool = False
) -> Tensor:
    """InfoNCE against class prototypes: Eq. (20)-(21) of FedSAF; with temperature 1, Eq. (4) of FedProc.

    ``-s_y + log sum_{c in M} exp(s_c)`` with ``s_c = cos(P_a, P_g^c) / temperature``, mean over the rows with y in M.

    Args:
        P: (n, d) rows of the client.
        labels: (n,) class of each row.
        table: global prototypes.
        temperature: > 0.
        double_positive: count the positive twice in the sum, as Algorithm 1 of FedProc read literally does.

    Returns:
        Scalar >= 0; a constant 0 without graph if no row has a prototype of its class (n = 0 included).

    Raises:
        FloatingPointError: NaN or Inf in the inputs.

    >>> import torch
    >>> table = ClassTable(torch.eye(2), torch.tensor([True, True]))
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

    Args:
        P: (n, d) rows of the client.
        labels: (n,) class of each row.
        table: global prototypes.
        temperature: > 0.

    Returns:
        Scalar; a constant 0 without graph if no row has a prototype of its class.

    Raises:
        FloatingPointError: NaN or Inf in the inputs.
    """
    known = table.mask[labels]
    if not known.any():
        return inactive(P)
    return checked("uniformity", _mean_over(known, _log_partition(_similarity(P, table, temperature), table)))


@full_precision
def batch_contrastive(P: Tensor, labels: Tensor, table: ClassTable, temperature: float) -> Tensor:
    """Contrast over the rows of the batch instead of over classes, as public code of AlignFed does.

    ``l_c = -mean_{a: y_a = c} (s_ac - log sum_{a'} exp(s_a'c))``; the loss is the sum of l_c over classes divided by C,
    a class without rows or without prototype contributing 0.

    Args:
        P: (n, d) rows of the client.
        labels: (n,) class of each row.
        table: global prototypes.
        temperature: > 0.

    Returns:
        Scalar >= 0, exactly 0 for one row; a constant 0 without graph if no row has a prototype of its class.

    Raises:
        FloatingPointError: NaN or Inf in the inputs.
    """
    known = table.mask[labels]
    if not known.any():
        return inactive(P)
    scores = _similarity(P, table, temperature).log_softmax(dim=0).gather(1, labels[:, None]).squeeze(1)
    rows_of_class = (labels[:, None] == labels).sum(dim=1)
    return checked("batch_contrastive", -(scores * known / rows_of_class).sum() / len(table.mask))


def _similarity(P: Tensor, table: ClassTable, temperature: float) -> Tensor:
    prototypes = unit_rows(table.values.detach().to(P.dtype), COSINE_FLOOR)
    return unit_rows(P, COSINE_FLOOR) @ prototypes.T / temperature


def _log_partition(similarity: Tensor, table: ClassTable) -> Tensor:
    return similarity.masked_fill(~table.mask, -math.inf).logsumexp(dim=1)


def _mean_over(known: Tensor, values: Tensor) -> Tensor:
    return (values * known).sum() / known.sum()
