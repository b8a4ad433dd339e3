"""How FedKD's mentee travels: tensors to the parts of a message and back.

A tensor travels under its own name, or as three factors ``name|U``, ``name|S``, ``name|V`` whose product it is.
Dimension letters: m rows, n columns, r rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Size, Tensor

from fedsaf.core.checks import one_of
from fedsaf.core.types import Message

Factors: TypeAlias = tuple[Tensor, Tensor, Tensor]
FACTORS = ("|U", "|S", "|V")
REFERENCE, UPDATE = "reference", "update:"


def low_rank(tensor: Tensor, energy: float) -> Factors | None:
    """Truncated singular value decomposition of a matrix; of a convolution kernel as an (out, in kh kw) matrix.

    Args:
        tensor: any shape.
        energy: share of the squared singular values to keep, in (0, 1].

    Returns:
        U (m, r), S (r,), V (r, n). None, for the tensor as it is, if it has fewer than two axes, is all zero, or would
        not get smaller: r (m + n + 1) >= m n.
    """
    if tensor.ndim < 2 or not bool(tensor.any()):
        return None
    matrix = tensor.flatten(1)
    tall = matrix.shape[0] > matrix.shape[1]
    U, S, V = _leading(matrix.T if tall else matrix, energy)
    if len(S) * (sum(matrix.shape) + 1) >= matrix.numel():
        return None
    return _sent((V.T, S, U.T) if tall else (U, S, V), tensor)


def _leading(matrix: Tensor, energy: float) -> Factors:
    """Return the leading singular triples of a wide matrix that hold the energy, in float64.

    They come from the eigenvectors of the Gram matrix, in a third of the time of a decomposition; singular values below
    1e-8 of the largest are inexact.
    """
    matrix = matrix.double()
    squares, vectors = torch.linalg.eigh(matrix @ matrix.T)
    squares = squares.flip(0).clamp_min(0.0)
    r = energy_rank(squares, energy)
    U, S = vectors.flip(1)[:, :r], squares[:r].sqrt()
    return U, S, U.T @ matrix / S[:, None]


def energy_rank(squares: Tensor, energy: float) -> int:
    """Return the smallest r >= 1 whose r largest squared singular values reach ``energy`` times their sum.

    Args:
        squares: descending, at least one, not all zero.
        energy: in (0, 1].

    >>> energy_rank(torch.tensor([9.0, 4.0, 1.0]), 0.92), energy_rank(torch.tensor([9.0, 4.0, 1.0]), 0.5)
    (2, 1)
    """
    kept = squares.cumsum(dim=0)
    return min(int((kept < energy * kept[-1]).sum()) + 1, len(squares))


def kernelwise_low_rank(tensor: Tensor, energy: float) -> Factors | None:
    """What the public benchmark library does: each kh x kw kernel for itself, one common rank, never the full one.

    The rank is the smallest r below the full one whose r largest singular values of all kernels hold *more* than the
    energy; if there is none, r = 0 and the tensor arrives as zeros, 1 x 1 convolutions always. The factors are sent
    even where they are larger than the tensor. It explains published numbers (register entry D17).

    Returns:
        U (..., m, r), S (..., r), V (..., r, n), the leading axes being those of the kernels; None as `low_rank`, but
        never for size.
    """
    if tensor.ndim < 2 or not bool(tensor.any()):
        return None
    U, S, V = torch.linalg.svd(tensor.double(), full_matrices=False)
    kept = S.square().reshape(-1, S.shape[-1]).sum(dim=0).cumsum(dim=0)
    enough = (kept[:-1] > energy * kept[-1]).nonzero()
    r = int(enough[0]) + 1 if len(enough) else 0
    return _sent((U[..., :r], S[..., :r], V[..., :r, :]), tensor)


def _sent(factors: Factors, tensor: Tensor) -> Factors:
    U, S, V = (factor.to(tensor.dtype).contiguous() for factor in factors)
    return U, S, V


CODECS: dict[str, Callable[[Tensor, float], Factors | None]] = {
    "svd": low_rank,
    "updates": low_rank,
    "htfllib_svd": kernelwise_low_rank,
    "none": lambda tensor, energy: None,
}


@dataclass(frozen=True)
class Compression:
    """What is decomposed, and how much of it is kept (register entry D17).

    Attributes:
        kind: ``svd`` decomposes the weights; ``updates`` what a round changed, as the original FedKD does;
            ``htfllib_svd`` see `kernelwise_low_rank`; ``none`` sends everything.
        energy_start: E_0, share of the squared singular values, in (0, 1].
        energy_end: E_t = energy_start + (energy_end - energy_start) t / T.
    """

    kind: str
    energy_start: float
    energy_end: float

    def __post_init__(self) -> None:
        one_of("compression", self.kind, CODECS)
        for name in ("energy_start", "energy_end"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected a share in (0, 1]")

    @property
    def of_updates(self) -> bool:
        """Whether changes travel instead of weights."""
        return self.kind == "updates"

    def energy(self, round: int, rounds: int) -> float:
        """Return E_t.

        >>> Compression("svd", 0.9, 1.0).energy(5, 10)
        0.95
        """
        return self.energy_start + (self.energy_end - self.energy_start) * round / rounds

    def pack(self, tensors: Mapping[str, Tensor], base: Mapping[str, Tensor], energy: float) -> Message:
        """Return the message for these tensors; with ``updates`` it holds their change from ``base``, compressed."""
        message: Message = {}
        for name, tensor in tensors.items():
            sent, name = (tensor - base[name], UPDATE + name) if self.of_updates else (tensor, name)
            factors = CODECS[self.kind](sent, energy)
            parts = {name: sent} if factors is None else dict(zip([name + f for f in FACTORS], factors, strict=True))
            message |= parts
        return message

    def unpack(self, message: Message, shapes: Mapping[str, Size], base: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors of these names and shapes; ``base`` is read if the message holds changes.

        Raises:
            KeyError: a tensor or one of its factors is missing.
        """
        if any(name.startswith(UPDATE) for name in message):
            return {name: base[name] + decoded(message, UPDATE + name, shape) for name, shape in shapes.items()}
        return {name: decoded(message, name, shape) for name, shape in shapes.items()}


def decoded(message: Message, name: str, shape: Size) -> Tensor:
    """Return a tensor of a message, U S V where it travelled as factors; KeyError if a part is missing."""
    if name in message:
        return message[name]
    U, S, V = (message[name + factor] for factor in FACTORS)
    return (U * S.unsqueeze(-2) @ V).view(shape)


def reference(message: Message, shapes: Mapping[str, Size]) -> dict[str, Tensor]:
    """Return the parameters to which a message's change applies; empty if it holds none.

    Raises:
        KeyError: it holds changes, but not the reference.
    """
    if not any(name.startswith(UPDATE) for name in message):
        return {}
    pieces = message[REFERENCE].split([shape.numel() for shape in shapes.values()])
    return {name: piece.view(shape) for (name, shape), piece in zip(shapes.items(), pieces, strict=True)}
