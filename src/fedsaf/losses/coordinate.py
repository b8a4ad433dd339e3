"""Coordinate losses: every row is pulled to the coordinates of its target; a rotation of one side is seen.

All take P (n, d) rows of the client with gradient and Q (n, d) targets, which never get one, and run in float32
(float64 for float64 rows) whatever the autocast. They return a scalar, a constant 0 without graph for n = 0, and raise
ValueError for rows that do not correspond, FloatingPointError for NaN or Inf in the inputs.
Dimension letters: n rows, d feature dimension.
"""

from __future__ import annotations

from torch import Tensor

from fedsaf.core.checks import one_of
from fedsaf.losses.numerics import checked, full_precision, inactive, target_like, unit_rows

COSINE_FLOOR = 1e-8
"""Rows no longer than this have no direction: their cosine with anything is 0."""

SQUARE_FLOOR = 1e-12
"""Below this squared length, the length is constant: its gradient is 0 instead of 0/0."""

REDUCTIONS = ("mean", "rowsum")


@full_precision
def mse(P: Tensor, Q: Tensor, reduction: str) -> Tensor:
    """Squared distance of matched rows, the loss of FedProto; >= 0.

    ``mean`` is over all n d entries; ``rowsum`` the squared length of each row, mean over rows (d times larger).

    >>> import torch
    >>> mse(torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2), "rowsum")
    tensor(25.)
    """
    one_of("reduction", reduction, REDUCTIONS)
    Q = target_like(Q, P)
    if len(P) == 0:
        return inactive(P)
    squares = (P - Q).square()
    return checked("mse", squares.mean() if reduction == "mean" else squares.sum() / len(P))


@full_precision
def l2(P: Tensor, Q: Tensor) -> Tensor:
    """Distance of matched rows, not squared, mean over rows: the client loss of FedTGP.

    At least 1e-6, the length of a zero difference under its floor, which has gradient 0.

    >>> import torch
    >>> l2(torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2))
    tensor(5.)
    """
    Q = target_like(Q, P)
    if len(P) == 0:
        return inactive(P)
    return checked("l2", (P - Q).square().sum(dim=1).clamp_min(SQUARE_FLOOR).sqrt().mean())


@full_precision
def cosine(P: Tensor, Q: Tensor) -> Tensor:
    """One minus the mean cosine of matched rows, in [0, 2].

    A zero row on either side counts as cosine 0 and gets no gradient.

    >>> import torch
    >>> cosine(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 3.0]]))
    tensor(1.)
    """
    Q = target_like(Q, P)
    if len(P) == 0:
        return inactive(P)
    similarities = (unit_rows(P, COSINE_FLOOR) * unit_rows(Q, COSINE_FLOOR)).sum(dim=1)
    return checked("cosine", 1 - similarities.mean())
