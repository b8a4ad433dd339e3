"""Propositions of FedSAF, and their negatives, on random matrices."""

import pytest
import torch

from fedsaf.losses.coordinate import cosine, l2, mse
from fedsaf.losses.structural import gcsa, rcsa

# 1e-10 for float32 too: the losses are half a squared difference of unit descriptors, whose rounding errors of a few
# 1e-7 enter squared.
PRECISIONS = [(torch.float64, 1e-10), (torch.float32, 1e-10)]
SHAPES = [(3, 16), (10, 16), (40, 16)]
structural = pytest.mark.parametrize("loss", [gcsa, rcsa])
precisions = pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS, ids=["float64", "float32"])


@precisions
@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_gcsa_is_blind_to_rotation_scale_and_shift(draw, n, d, dtype, tolerance):
    P, shift = draw(n, d, dtype=dtype), draw(d, dtype=dtype)
    assert gcsa(P, 2.5 * P @ draw.rotation(d, dtype) + shift).item() < tolerance


@precisions
@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_rcsa_is_blind_to_rotation_and_scale_of_rows(draw, n, d, dtype, tolerance):
    P, scales = draw(n, d, dtype=dtype), draw(n, 1, dtype=dtype).exp()
    assert rcsa(P, scales * (P @ draw.rotation(d, dtype))).item() < tolerance


def test_what_each_loss_does_see(draw):
    P, R, shift = draw(10, 16), draw.rotation(16), draw(16)
    assert mse(P, P @ R, "mean") > 0.1
    assert l2(P, P @ R) > 0.1
    assert cosine(P, P @ R) > 0.1
    assert rcsa(P, P + 3 * shift) > 1e-3
    assert rcsa(P, draw(10, 16)) > 1e-3
    assert gcsa(P, draw(10, 16)) > 1e-3


def test_gcsa_sees_a_reshaped_triangle(draw):
    triangle = draw(3, 2)
    stretched = triangle * torch.tensor([3.0, 1.0])
    assert gcsa(triangle, stretched) > 1e-3


@structural
@precisions
def test_symmetric_and_in_range(draw, loss, dtype, tolerance):
    for _ in range(20):
        P, Q = draw(7, 5, dtype=dtype), draw(7, 5, dtype=dtype) ** 3
        value = loss(P, Q).item()
        assert 0 <= value <= 1
        assert loss(Q, P).item() == pytest.approx(value, abs=1e-12 if dtype == torch.float64 else 1e-6)


@structural
def test_joint_permutation_of_rows(draw, loss):
    P, Q = draw(9, 5), draw(9, 5)
    order = torch.tensor([3, 1, 8, 0, 2, 7, 6, 5, 4])
    assert loss(P[order], Q[order]).item() == pytest.approx(loss(P, Q).item(), abs=1e-12)
    assert abs(loss(P[order], Q).item() - loss(P, Q).item()) > 1e-4


@structural
@pytest.mark.parametrize("n", [3, 12, 40])
def test_one_gradient_step_decreases(draw, loss, n):
    P, Q = draw(n, 8, dtype=torch.float32).requires_grad_(), draw(n, 8, dtype=torch.float32)
    before = loss(P, Q)
    (gradient,) = torch.autograd.grad(before, P)
    assert loss(P - 0.1 * gradient, Q) < before - 1e-6


@structural
def test_gradient_is_blind_to_the_scale_that_the_loss_divides_by(draw, loss):
    # L(a P) = L(P) means that the gradient at a P is the one at P divided by a.
    P, Q = draw(6, 5), draw(6, 5)
    gradients = []
    for scale in (1.0, 1e4):
        scaled = (scale * P).requires_grad_()
        gradients.append(scale * torch.autograd.grad(loss(scaled, Q), scaled)[0])
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("loss", [lambda P, Q: mse(P, Q, "mean"), l2, cosine, gcsa, rcsa])
def test_gradient_equals_finite_differences(draw, loss):
    P, Q = draw(6, 4).requires_grad_(), draw(6, 4)
    assert torch.autograd.gradcheck(lambda P: loss(P, Q), (P,), eps=1e-6, atol=1e-7)


@pytest.mark.parametrize("loss", [lambda P, Q: mse(P, Q, "mean"), l2, cosine, gcsa, rcsa])
def test_targets_get_no_gradient(draw, loss):
    P, Q = draw(6, 4).requires_grad_(), draw(6, 4).requires_grad_()
    loss(P, Q).backward()
    assert P.grad.abs().sum() > 0
    assert Q.grad is None
