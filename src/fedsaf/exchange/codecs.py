"""Low-rank codecs: tensors to the parts of a message and back, as FedKD (Wu et al., 2022) sends its mentee.

A tensor travels under its own name, or as three factors ``name|U``, ``name|S``, ``name|V`` whose product it is.
Dimension letters: m rows, n columns, r rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Size, Tensor

from fedsaf.core.types import Message

FACTORS = ("|U", "|S", "|V")


class Codec(Protocol):
    """How one tensor travels."""

    def factors(self, tensor: Tensor, energy: float) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return U, S, V, or None if the tensor is to travel as it is."""
        ...

    def product(self, factors: tuple[Tensor, Tensor, Tensor], shape: Size) -> Tensor:
        """Return the tensor of this shape that the factors stand for."""
        ...


def encode(codec: Codec, tensors: Mapping[str, Tensor], energy: float) -> Message:
    """Return the parts of a message for these tensors.

    Args:
        codec: how a tensor travels.
        tensors: by name.
        energy: share of the squared singular values to keep, in (0, 1].
    """
    message: Message = {}
    for name, tensor in tensors.items():
        factors = codec.factors(tensor, energy)
        if factors is None:
            message[name] = tensor
        else:
            message |= {name + suffix: factor for suffix, factor in zip(FACTORS, factors, strict=True)}
    return message


def decode(codec: Codec, message: Message, shapes: Mapping[str, Size]) -> dict[str, Tensor]:
    """Return the tensors of these names and shapes.

    Raises:
        KeyError: a tensor or one of its factors is missing.
    """
    return {
        name: message[name]
        if name in message
        else codec.product(tuple(message[name + suffix] for suffix in FACTORS), shape)
        for name, shape in shapes.items()
    }


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


class LowRank:
    """Truncated singular value decomposition of matrices; of convolution kernels as (out, in kh kw) matrices.

    A tensor travels as it is if it has fewer than two axes, is all zero, or would not get smaller:
    r (m + n + 1) >= m n.
    """

    def factors(self, tensor: Tensor, energy: float) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return U (m, r), S (r,), V (r, n)."""
        if tensor.ndim < 2 or not bool(tensor.any()):
            return None
        matrix = tensor.flatten(1)
        tall = matrix.shape[0] > matrix.shape[1]
        U, S, V = _leading(matrix.T if tall else matrix, energy)
        if len(S) * (sum(matrix.shape) + 1) >= matrix.numel():
            return None
        factors = (V.T, S, U.T) if tall else (U, S, V)
        return tuple(factor.to(tensor.dtype).contiguous() for factor in factors)

    def product(self, factors: tuple[Tensor, Tensor, Tensor], shape: Size) -> Tensor:
        """Return U S V in this shape."""
        U, S, V = factors
        return (U * S @ V).view(shape)


class Full(LowRank):
    """Every tensor as it is: never factors."""

    def factors(self, tensor: Tensor, energy: float) -> None:
        """Return None."""


def _leading(matrix: Tensor, energy: float) -> tuple[Tensor, Tensor, Tensor]:
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


class KernelwiseLowRank:
    """What the public benchmark library does: each kh x kw kernel for itself, one common rank, never the full one.

    The rank is the smallest r below the full one whose r largest singular values of all kernels hold *more* than the
    energy; if there is none, r = 0 and the tensor arrives as zeros, 1 x 1 convolutions always. The factors are sent
    even where they are larger than the tensor. It explains published numbers (register entry D17).
    """

    def factors(self, tensor: Tensor, energy: float) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return U (..., m, r), S (..., r), V (..., r, n), the leading axes being those of the kernels."""
        if tensor.ndim < 2 or not bool(tensor.any()):
            return None
        U, S, V = torch.linalg.svd(tensor.double(), full_matrices=False)
        kept = S.square().reshape(-1, S.shape[-1]).sum(dim=0).cumsum(dim=0)
        enough = (kept[:-1] > energy * kept[-1]).nonzero()
        r = int(enough[0]) + 1 if len(enough) else 0
        return tuple(factor.to(tensor.dtype).contiguous() for factor in (U[..., :r], S[..., :r], V[..., :r, :]))

    def product(self, factors: tuple[Tensor, Tensor, Tensor], shape: Size) -> Tensor:
        """Return U S V."""
        U, S, V = factors
        return (U * S.unsqueeze(-2) @ V).view(shape)
