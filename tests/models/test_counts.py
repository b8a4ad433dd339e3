"""MLPs on counts of words."""

import pytest
import torch

from fedsaf.core.types import CountFacts
from fedsaf.models.counts import CountGroup

# trunk parameters at 5,000 counted words
SIZES = {
    "mlp": 500_100,
    "mlp_200": 1_020_300,
    "mlp_500": 2_550_600,
    "mlp_1000_500": 5_551_600,
    "mlp_1000_500_200": 5_621_800,
}


def group_of(*architectures):
    return CountGroup("test", architectures, ["linear"], 512, "pool", False)


@pytest.mark.parametrize("name", SIZES)
def test_sizes(name):
    torch.manual_seed(0)
    model = group_of(name).build(0, 2, CountFacts(5_000))
    assert sum(p.numel() for p in model.backbone.parameters()) == SIZES[name]
    assert sum(p.numel() for p in model.head.parameters()) == 1_026
    trunk = model.backbone(torch.rand(3, 5_000))
    assert trunk.shape == (3, model.backbone.num_features) == (3, 100)
    assert (trunk >= 0).all()
    assert trunk.any()


def test_costs_follow_the_multiplications():
    costs = [group_of(name).cost_of(0) for name in SIZES]
    assert costs[0] == 1
    assert costs == sorted(costs)
    assert costs[2] == pytest.approx((5_000 * 500 + 500 * 100) / 500_000)


@pytest.mark.parametrize("name", ["", "mlp_", "mlp_0", "mlp_500_", "lstm", "mlp500"])
def test_other_names_are_refused_with_an_example(name):
    with pytest.raises(ValueError, match=rf"'{name}'.*mlp_1000_500"):
        group_of(name)


def test_no_counted_word_is_refused():
    with pytest.raises(ValueError, match="counts of 0 words.*'mlp'"):
        group_of("mlp").check(10, CountFacts(0))
    group_of("mlp").check(1, CountFacts(1))
    assert group_of("mlp").build(0, 2, CountFacts(1)).eval()(torch.zeros(1, 1))[0].isfinite().all()
