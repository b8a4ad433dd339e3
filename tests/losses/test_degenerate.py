"""Every input for which a loss has no value, or would have a NaN gradient."""

import pytest
import torch

from fedsaf.losses.contrastive import batch_contrastive, contrastive, uniformity
from fedsaf.losses.coordinate import cosine, l2, mse
from fedsaf.losses.structural import centre, gcsa, rcsa
from fedsaf.prototypes.class_means import class_means
from fedsaf.prototypes.class_table import ClassTable

COORDINATE = {"mse": lambda P, Q: mse(P, Q, "mean"), "l2": l2, "cosine": cosine}
STRUCTURAL = {"gcsa": gcsa, "rcsa": rcsa}
coordinate = pytest.mark.parametrize("loss", COORDINATE.values(), ids=COORDINATE)
structural = pytest.mark.parametrize("loss", STRUCTURAL.values(), ids=STRUCTURAL)
every = pytest.mark.parametrize("loss", {**COORDINATE, **STRUCTURAL}.values(), ids={**COORDINATE, **STRUCTURAL})


def is_inactive(value):
    return value.item() == 0 and not value.requires_grad and value.shape == ()


def gradient_of(loss, P, Q):
    P = P.clone().requires_grad_()
    return torch.autograd.grad(loss(P, Q), P)[0]


@every
def test_no_row(loss):
    assert is_inactive(loss(torch.zeros(0, 4, requires_grad=True), torch.zeros(0, 4)))


@coordinate
@pytest.mark.parametrize("n", [1, 2])
def test_one_and_two_rows_are_normal_for_coordinate_losses(draw, loss, n):
    assert gradient_of(loss, draw(n, 4), draw(n, 4)).abs().sum() > 0


@structural
@pytest.mark.parametrize("n", [1, 2])
def test_one_and_two_rows_have_no_structure(draw, loss, n):
    assert is_inactive(loss(draw(n, 4).requires_grad_(), draw(n, 4)))


@structural
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("offset", [0.0, 1e-3, 1.0, 1e3, 1e6])
def test_equal_rows_have_no_structure(draw, loss, dtype, offset):
    row = draw(1, 64, dtype=dtype) + offset
    equal, spread = row.expand(17, 64), draw(17, 64, dtype=dtype)
    assert is_inactive(loss(equal.clone().requires_grad_(), spread))
    assert is_inactive(loss(spread.clone().requires_grad_(), equal))


@pytest.mark.parametrize("n", [3, 7, 100])
def test_equal_rows_are_centred_to_exact_zero(n):
    rows = torch.tensor([[0.1, 1000.3, -7e5]]).expand(n, 3)
    assert not centre(rows).any()


@structural
@pytest.mark.parametrize("offset", [1.0, 1e3])
def test_rows_equal_up_to_rounding_have_no_structure(draw, loss, offset):
    # Means over 1, 2, ... equal vectors: each division rounds differently, so the rows are not equal bit for bit.
    z = (draw(1, 64, dtype=torch.float32) + offset).expand(91, 64)
    y = torch.arange(13).repeat_interleave(torch.arange(1, 14))
    means = class_means(z * torch.tensor(1 / 3), y, 13).rows
    noisy = means * (1 + torch.finfo(torch.float32).eps * torch.arange(13)[:, None].remainder(3))
    assert not torch.equal(noisy, noisy[:1].expand(13, 64))
    assert is_inactive(loss(noisy.clone().requires_grad_(), draw(13, 64, dtype=torch.float32)))


def test_parallel_rows_have_shape_but_no_dissimilarity(draw):
    P = draw(1, 8, dtype=torch.float32) * torch.arange(1.0, 7.0)[:, None]
    Q = draw(6, 8, dtype=torch.float32)
    assert is_inactive(rcsa(P.clone().requires_grad_(), Q))
    assert gradient_of(gcsa, P, Q).abs().sum() > 0


@structural
def test_small_spread_on_a_large_offset_is_still_seen(draw, loss):
    P, Q = 1e3 + draw(6, 64, dtype=torch.float32), draw(6, 64, dtype=torch.float32)
    exact = loss(P.double(), Q.double()).item()
    assert loss(P, Q).item() == pytest.approx(exact, abs=1e-3)
    assert gradient_of(loss, P, Q).isfinite().all()


@structural
@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e6, 1e12])
def test_scale_of_the_features_does_not_matter(draw, loss, scale):
    P, Q = draw(6, 64, dtype=torch.float32), draw(6, 64, dtype=torch.float32)
    assert loss(scale * P, Q / scale).item() == pytest.approx(loss(P, Q).item(), abs=1e-5)
    assert gradient_of(loss, scale * P, Q).isfinite().all()


@structural
def test_two_distinct_rows_among_three(draw, loss):
    a, b = draw(2, 8)
    assert gradient_of(loss, torch.stack([a, a, b]), draw(3, 8)).isfinite().all()


@every
def test_zero_row_gives_a_finite_gradient(draw, loss):
    P, Q = draw(5, 4, dtype=torch.float32), draw(5, 4, dtype=torch.float32)
    P[2] = 0
    Q[3] = 0
    gradient = gradient_of(loss, P, Q)
    assert gradient.isfinite().all()
    assert gradient.abs().max() < 1e3


def test_zero_row_counts_as_cosine_zero():
    P = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    Q = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert cosine(P, Q).item() == 0.5
    assert gradient_of(cosine, P, Q)[1].tolist() == [0, 0]


def test_zero_row_stays_at_the_origin_for_rcsa():
    # Distances of 0, e1, e2: 1, 1, 2. Against e1, e2, -e1: 2, 4, 2. Cosine (2 + 4 + 4) / sqrt(6 * 24) = 10 / 12.
    P = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    Q = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    assert rcsa(P, Q).item() == pytest.approx(1 - 10 / 12, abs=1e-12)


def test_equal_matrices_have_zero_gradient_under_l2(draw):
    P = draw(5, 4)
    assert gradient_of(l2, P, P).abs().max() == 0
    assert l2(P, P).item() == pytest.approx(1e-6)


@structural
def test_equal_matrices_have_zero_gradient(draw, loss):
    P = draw(5, 4)
    assert gradient_of(loss, P, P).abs().max() < 1e-14


@every
@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("side", [0, 1])
def test_nan_and_inf_are_refused(draw, loss, n, bad, side):
    pair = [draw(n, 4, dtype=torch.float32), draw(n, 4, dtype=torch.float32)]
    pair[side][-1, 2] = bad
    with pytest.raises(FloatingPointError, match="mse|l2|cosine|gcsa|rcsa"):
        loss(*pair)


@every
def test_overflow_is_refused_and_not_read_as_zero(draw, loss):
    P = draw(5, 4, dtype=torch.float32)
    with pytest.raises(FloatingPointError):
        loss(P * 1e25, P.flip(0))


@every
def test_rows_must_correspond(draw, loss):
    with pytest.raises(ValueError, match="rows and targets"):
        loss(draw(5, 4), draw(6, 4))


@pytest.mark.parametrize("loss", [contrastive, uniformity, batch_contrastive])
class TestAgainstTable:
    def test_no_row(self, loss, golden):
        assert is_inactive(loss(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long), golden[3], 1.0))

    def test_no_prototype(self, loss, golden):
        P, _, labels, _ = golden
        table = ClassTable(torch.zeros(4, 3), torch.zeros(4, dtype=torch.bool))
        assert is_inactive(loss(P.requires_grad_(), labels, table, 1.0))

    def test_one_row_and_one_prototype(self, loss, golden):
        P, Q, labels, _ = golden
        table = ClassTable(Q * torch.tensor([1, 0, 0, 0])[:, None], torch.tensor([True, False, False, False]))
        value = loss(P[:1].requires_grad_(), labels[:1], table, 1.0)
        assert value.requires_grad
        expected = (P[0] @ Q[0] / (P[0].norm() * Q[0].norm())).item() if loss is uniformity else 0.0
        assert value.item() == pytest.approx(expected, abs=1e-15)

    def test_zero_rows(self, loss, golden):
        P, Q, labels, _ = golden
        P, Q = P.clone(), Q.clone()
        P[1], Q[2] = 0, 0
        P.requires_grad_()
        loss(P, labels, ClassTable(Q, torch.ones(4, dtype=torch.bool)), 0.07).backward()
        assert P.grad.isfinite().all()
        assert P.grad[1].abs().max() == 0

    @pytest.mark.parametrize("bad", [float("nan"), float("inf")])
    def test_nan_and_inf(self, loss, golden, bad):
        P, Q, labels, table = golden
        spoilt = P.clone()
        spoilt[1, 1] = bad
        with pytest.raises(FloatingPointError, match="contrastive|uniformity"):
            loss(spoilt, labels, table, 1.0)
        prototypes = Q.clone()
        prototypes[1, 1] = bad
        with pytest.raises(FloatingPointError, match="contrastive|uniformity"):
            loss(P, labels, ClassTable(prototypes, table.mask), 1.0)
