"""Heads: published sizes, and what a final ReLU does."""

import pytest
import torch

from fedsaf.models.heads import HEADS, build_head


@pytest.mark.parametrize(
    ("name", "num_classes", "parameters"),
    [
        *(("linear", classes, classes * 513) for classes in (2, 4, 7, 10, 80, 100, 102, 200, 345)),
        ("vit", 100, 470_884),
        ("htc0", 100, 51_300),
        ("htc1", 100, 313_956),
        ("htc2", 100, 157_028),
        ("htc3", 100, 78_564),
    ],
)
def test_sizes(name, num_classes, parameters):
    head = build_head(name, 512, num_classes, final_relu=False)
    assert sum(p.numel() for p in head.parameters()) == parameters
    assert head(torch.zeros(2, 512)).shape == (2, num_classes)


@pytest.mark.parametrize("name", [name for name in HEADS if name.startswith("htc")])
def test_final_relu_only_cuts_negative_logits(name):
    z = torch.randn(4, 16, generator=torch.Generator().manual_seed(0))
    logits = []
    for final_relu in (False, True):
        torch.manual_seed(1)
        logits.append(build_head(name, 16, 10, final_relu)(z))
    assert (logits[0] < 0).any()
    assert torch.equal(logits[1], logits[0].clamp(min=0))


def test_unknown_head_suggests_the_nearest():
    with pytest.raises(ValueError, match="'htc4'.*htc"):
        build_head("htc4", 16, 10, final_relu=False)
