import pytest
import torch

from fedsaf.core.types import StepView
from fedsaf.losses.objective import Objective, Weighted
from fedsaf.losses.schedules import SCHEDULES, scheduled_weight
from fedsaf.losses.terms import CrossEntropy


def view(t=0, rounds=4, logits=None):
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0]], requires_grad=True) if logits is None else logits
    return StepView(
        x=torch.zeros(2, 1),
        y=torch.tensor([0, 1]),
        z=torch.zeros(2, 3),
        logits=logits,
        round=t,
        rounds=rounds,
        received={},
        model=None,
        auxiliary={},
        memory={},
        scratch={},
    )


class Constant:
    def __call__(self, view):
        return torch.tensor(7.0)


class Explode:
    def __call__(self, view):
        raise AssertionError("a term of weight 0 must not be computed")


def test_cross_entropy_by_hand():
    # -log softmax: log(1 + e^-2) and log(1 + e^-1).
    expected = (torch.log1p(torch.tensor(-2.0).exp()) + torch.log1p(torch.tensor(-1.0).exp())) / 2
    assert CrossEntropy()(view()).item() == pytest.approx(expected.item(), rel=1e-6)


def test_cross_entropy_is_float32_for_half_logits():
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0]], dtype=torch.bfloat16, requires_grad=True)
    assert CrossEntropy()(view(logits=logits)).dtype == torch.float32


def test_sum_is_weighted_and_values_are_not():
    objective = Objective(
        {"a": Weighted(CrossEntropy(), 1.0, "constant"), "b": Weighted(CrossEntropy(), 3.0, "constant")}
    )
    total, values = objective(view())
    assert total.item() == pytest.approx(4 * values["a"].item(), rel=1e-6)
    assert values["a"].item() == values["b"].item()


def test_weight_zero_is_not_computed_and_a_constant_is_not_added():
    objective = Objective(
        {
            "ce": Weighted(CrossEntropy(), 1.0, "constant"),
            "off": Weighted(Explode(), 0.0, "constant"),
            "silent": Weighted(Constant(), 5.0, "constant"),
        }
    )
    total, values = objective(view())
    assert set(values) == {"ce", "silent"}
    assert total.item() == values["ce"].item()
    assert not values["silent"].requires_grad


def test_an_objective_without_a_gradient_is_an_error():
    with pytest.raises(RuntimeError, match="contributes a gradient in round 2"):
        Objective({"silent": Weighted(Constant(), 1.0, "constant")})(view(t=2))


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_bad_weights_are_refused(weight):
    with pytest.raises(ValueError, match="CrossEntropy"):
        Weighted(CrossEntropy(), weight, "constant")


def test_unknown_schedule_lists_the_known_ones():
    with pytest.raises(ValueError, match="constant, linear_decay"):
        Weighted(CrossEntropy(), 1.0, "cosine")


def test_schedules_over_four_rounds():
    values = {name: [scheduled_weight(name, 2.0, t, 4) for t in range(4)] for name in SCHEDULES}
    assert values["constant"] == [2.0] * 4
    assert values["linear_decay"] == [2.0, 1.5, 1.0, 0.5]
    assert values["linear_growth"] == [0.0, 0.5, 1.0, 1.5]
