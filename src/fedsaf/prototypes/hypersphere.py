"""Fixed class targets spread over a sphere, as in AlignFed: the same for all clients, before any training.

Dimension letters: d feature dimension, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Generator, Tensor

from fedsaf.core.contracts import Aggregator
from fedsaf.core.seeding import torch_generator
from fedsaf.core.types import Message, ServerContext, Upload
from fedsaf.prototypes.class_table import ClassTable

ENERGY_TEMPERATURE = 0.5
STEP = 0.1
MAX_STEPS = 100_000
CHECK_EVERY = 1_000
RELATIVE_CHANGE = 1e-6


def etf(num_classes: int, feature_dim: int, generator: Generator) -> Tensor:
    """Simplex equiangular tight frame: all pairwise cosines are -1/(C - 1), the most even spread there is.

    ``V = sqrt(C / (C - 1)) U (I - 1 1^T / C)`` with U a (d, C) matrix of orthonormal columns.

    Args:
        num_classes: C, from 2 to d. Two classes give opposite vectors.
        feature_dim: d.
        generator: draws the orientation.

    Returns:
        (C, d) float64 unit rows.

    Raises:
        ValueError: C outside [2, d].
    """
    if num_classes < 2:
        raise ValueError(f"builder 'etf' needs num_classes >= 2, got {num_classes}")
    frame = orthogonal(num_classes, feature_dim, generator)
    return (num_classes / (num_classes - 1)) ** 0.5 * (frame - frame.mean(dim=0))


def optimise(num_classes: int, feature_dim: int, generator: Generator) -> Tensor:
    """Spread vectors by projected gradient descent on :func:`energy`; the way for C > d.

    Stop rule: after each block of 1000 steps, stop if the energy changed by less than 1e-6 of its value, and in any
    case after 100 000 steps. For C <= d + 1 this ends at the cosines of the simplex, -1/(C - 1).

    Deviation: a step is 0.1 times the gradient of the sum over classes, not of their mean. With the mean, vectors move
    C times slower, and for C = 100 the stop rule holds while cosines are still 0.011 away from the simplex.

    Args:
        num_classes: C.
        feature_dim: d.
        generator: draws the starting point, uniform in (-1, 1) and normalised.

    Returns:
        (C, d) float64 unit rows.
    """
    start = torch.rand(num_classes, feature_dim, dtype=torch.float64, generator=generator)
    vectors = _on_sphere(2 * start - 1)
    before = energy(vectors)
    for _ in range(MAX_STEPS // CHECK_EVERY):
        for _ in range(CHECK_EVERY):
            attention = (vectors @ vectors.T / ENERGY_TEMPERATURE).softmax(dim=1)
            gradient = (attention + attention.T) @ vectors / ENERGY_TEMPERATURE
            vectors = _on_sphere(vectors - STEP * gradient)
        now = energy(vectors)
        if abs(before - now) < RELATIVE_CHANGE * abs(now):
            break
        before = now
    return vectors


def orthogonal(num_classes: int, feature_dim: int, generator: Generator) -> Tensor:
    """Orthonormal rows: the Q factor of a Gaussian matrix, signs fixed so that it is unique.

    Args:
        num_classes: C, at most d.
        feature_dim: d.
        generator: draws the Gaussian matrix.

    Returns:
        (C, d) float64 unit rows.

    Raises:
        ValueError: C > d.
    """
    if num_classes > feature_dim:
        raise ValueError(
            f"builders 'etf' and 'orthogonal' need num_classes <= feature_dim = {feature_dim}, got {num_classes}; "
            "use 'optimise'"
        )
    gaussian = torch.randn(feature_dim, num_classes, dtype=torch.float64, generator=generator)
    basis, triangular = torch.linalg.qr(gaussian)
    return (basis * triangular.diagonal().sign()).T.contiguous()


def random(num_classes: int, feature_dim: int, generator: Generator) -> Tensor:
    """Independent uniform directions, the control: (C, d) float64 unit rows."""
    return _on_sphere(torch.randn(num_classes, feature_dim, dtype=torch.float64, generator=generator))


def energy(vectors: Tensor) -> float:
    """Mean over classes of ``log sum_c' exp(v_c . v_c' / 0.5)``, all c' included: small when vectors are spread.

    For unit vectors with C <= d + 1 the minimum is ``log(e^2 + (C - 1) e^(-2 / (C - 1)))``.
    """
    return (vectors @ vectors.T / ENERGY_TEMPERATURE).logsumexp(dim=1).mean().item()


def _on_sphere(vectors: Tensor) -> Tensor:
    return vectors / torch.linalg.vector_norm(vectors, dim=1, keepdim=True)


BUILDERS: dict[str, Callable[[int, int, Generator], Tensor]] = {
    "etf": etf,
    "optimise": optimise,
    "orthogonal": orthogonal,
    "random": random,
}


class Hypersphere(Aggregator):
    """Constructor whose prototypes exist for all classes before round 0 and never change.

    Attributes:
        needs_counts: False.
        needs_uploads: False; what clients upload is ignored.
    """

    needs_uploads = False

    def __init__(self, builder: str, radius: float) -> None:
        """Choose the spread.

        Args:
            builder: a key of ``BUILDERS``, or ``auto``: ``etf`` where C <= d, else ``optimise``.
            radius: length of every prototype, > 0; matters for losses that see scale.

        Raises:
            ValueError: unknown builder, or a radius that is not positive.
        """
        if builder != "auto" and builder not in BUILDERS:
            raise ValueError(f"builder must be one of {['auto', *BUILDERS]}, got {builder!r}")
        if not radius > 0:
            raise ValueError(f"radius must be positive, got {radius}")
        self.builder = builder
        self.radius = radius

    def prepare(self, context: ServerContext) -> None:
        """Build the table from the seed; ValueError if the builder cannot place C classes in d dimensions."""
        name = self.builder
        if name == "auto":
            name = "etf" if context.num_classes <= context.feature_dim else "optimise"
        vectors = BUILDERS[name](
            context.num_classes, context.feature_dim, torch_generator(context.seed, "prototypes/hypersphere")
        )
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


class EtfClassifier(Hypersphere):
    """The fixed classifier of FedKTL: C directions in R^C with all cosines -1/(C - 1), the same for all clients.

    Row c is column c of ``F = sqrt(C / (C - 1)) O (I - 1 1^T / C)`` with O orthogonal. Two classes give opposite
    vectors.
    """

    def __init__(self) -> None:
        """Choose the simplex of unit vectors."""
        super().__init__(builder="etf", radius=1.0)

    def prepare(self, context: ServerContext) -> None:
        """Build the table in R^C from the seed; ValueError for a single class."""
        super().prepare(replace(context, feature_dim=context.num_classes))
