import pytest
import torch

from fedsaf.core.types import StepView
from fedsaf.prototypes.class_table import ClassTable


@pytest.fixture
def golden():
    """The pair of matrices whose losses were worked out in float64 outside this code, and the table of the second."""
    P = torch.tensor([[1, 0, 0], [0, 2, 0], [0, 0, 3], [1, 1, 1]], dtype=torch.float64)
    Q = torch.tensor([[2, 0, 1], [0, 1, 0], [1, 0, 0], [0, 1, 1]], dtype=torch.float64)
    return P, Q, torch.arange(4), ClassTable(Q, torch.ones(4, dtype=torch.bool))


@pytest.fixture
def draw():
    """Gaussian matrices and random rotations from one seed per test."""
    generator = torch.Generator().manual_seed(20240501)

    def normal(*shape, dtype=torch.float64):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    def rotation(d, dtype=torch.float64):
        return torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64)).Q.to(dtype)

    normal.rotation = rotation
    return normal


@pytest.fixture
def view_of():
    def make(z, y, table, **received):
        received = received if table is None else {"prototypes": table, **received}
        return StepView(
            x=z,
            y=y,
            z=z,
            logits=z,
            round=0,
            rounds=1,
            received=received,
            model=None,
            auxiliary={},
            memory={},
            scratch={},
        )

    return make
