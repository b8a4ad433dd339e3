"""Proposition 1 of FedSAF, against the rotation itself."""

import pytest
import torch
from torch.nn.functional import normalize

from fedsaf.losses.decomposition import decompose


@pytest.mark.parametrize(("n", "d"), [(1, 6), (2, 6), (6, 6), (4, 20), (20, 4)])
def test_shape_is_what_the_best_rotation_leaves(draw, n, d):
    P, Z = draw(n, d), draw(n, d)
    parts = decompose(P, Z)
    P, Z = normalize(P, dim=1), normalize(Z, dim=1)
    U, _, Vh = torch.linalg.svd(P.T @ Z)
    assert parts.coordinate == pytest.approx((Z - P).square().sum().item(), abs=1e-10)
    assert parts.shape == pytest.approx((Z - P @ U @ Vh).square().sum().item(), abs=1e-10)
    assert parts.coordinate == pytest.approx(parts.shape + parts.rigid, abs=1e-12)
    assert parts.rigid >= 0
    for _ in range(10):
        assert parts.shape <= (Z - P @ draw.rotation(d)).square().sum().item() + 1e-12


def test_a_rotation_is_all_rigid(draw):
    P = draw(8, 12)
    parts = decompose(P, 3 * P @ draw.rotation(12))
    assert parts.shape == pytest.approx(0, abs=1e-10)
    assert parts.rigid > 1


def test_rigid_is_zero_when_the_identity_is_best():
    # A symmetric positive definite P^T Z has the identity as its polar factor, though Z differs from P.
    P = torch.eye(6, dtype=torch.float64)
    assert decompose(P, P) == (0, 0, 0)
    parts = decompose(P, P + 0.1)
    assert parts.shape > 0.1
    assert parts.rigid == pytest.approx(0, abs=1e-10)


def test_degenerate_inputs(draw):
    assert decompose(torch.zeros(0, 4), torch.zeros(0, 4)) == (0, 0, 0)
    parts = decompose(torch.zeros(3, 4), draw(3, 4))
    assert parts == pytest.approx((3, 3, 0))
    assert all(torch.tensor(decompose(draw(1, 4).expand(3, 4), draw(1, 4).expand(3, 4))).isfinite())
    with pytest.raises(FloatingPointError):
        decompose(torch.full((2, 2), float("nan")), draw(2, 2))
    with pytest.raises(ValueError, match="rows and targets"):
        decompose(draw(2, 2), draw(3, 2))
