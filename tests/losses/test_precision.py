"""Losses are computed in float32 (or float64) whatever the precision around them."""

import pytest
import torch

from fedsaf.losses.alignment import GCSA, L2, MSE, RCSA, Contrastive, Cosine, NoAlignment, Uniformity
from fedsaf.losses.two_level import InstanceLevel, PrototypeLevel
from fedsaf.prototypes.class_table import ClassTable

LOSSES = {
    "mse": MSE("mean"),
    "l2": L2(),
    "cosine": Cosine(),
    "gcsa": GCSA(),
    "rcsa": RCSA(),
    "contrastive": Contrastive(0.5, False, "class"),
    "batch_contrastive": Contrastive(0.5, False, "batch"),
    "uniformity": Uniformity(0.5),
}
HALVES = [torch.bfloat16, torch.float16]
losses = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
halves = pytest.mark.parametrize("half", HALVES, ids=["bfloat16", "float16"])


@pytest.fixture
def case(draw):
    table = ClassTable(draw(5, 64, dtype=torch.float32), torch.ones(5, dtype=torch.bool))
    return draw(40, 64, dtype=torch.float32), torch.arange(40) % 5, table


@losses
@halves
def test_half_rows_give_the_float32_value_of_the_same_numbers(case, loss, half):
    z, labels, table = case
    rows = z.to(half).requires_grad_()
    value = loss(rows, table.values[labels], labels, table)
    assert value.dtype == torch.float32
    assert torch.equal(value, loss(z.to(half).float(), table.values[labels], labels, table))
    value.backward()
    assert rows.grad.dtype == half
    assert rows.grad.isfinite().all()


@losses
@halves
def test_autocast_changes_no_bit(case, loss, half):
    z, labels, table = case
    expected = loss(z, table.values[labels], labels, table)
    with torch.autocast("cpu", dtype=half):
        assert torch.equal(loss(z, table.values[labels], labels, table), expected)


@pytest.mark.parametrize("level", [PrototypeLevel, InstanceLevel])
@losses
@halves
def test_levels_under_autocast(case, view_of, level, loss, half):
    z, labels, table = case
    term = level(loss, "skip")
    expected = term(view_of(z.to(half).float(), labels, table))
    with torch.autocast("cpu", dtype=half):
        assert torch.equal(term(view_of(z.to(half), labels, table)), expected)


@pytest.mark.parametrize("loss", [GCSA(), RCSA()])
def test_largest_halves_do_not_overflow(case, loss):
    z, labels, table = case
    rows = (z.sign() * 65504 * (1 - z.abs() / 10)).half().requires_grad_()
    value = loss(rows, table.values[labels], labels, table)
    value.backward()
    assert 0 < value.item() < 1
    assert rows.grad.isfinite().all()


@losses
def test_double_rows_stay_double(case, loss):
    z, labels, table = case
    assert loss(z.double(), table.values[labels], labels, table).dtype == torch.float64


def test_no_alignment_is_a_constant_in_float32(case):
    z, labels, table = case
    value = NoAlignment()(z.half().requires_grad_(), table.values[labels], labels, table)
    assert (value.item(), value.dtype, value.requires_grad) == (0, torch.float32, False)
