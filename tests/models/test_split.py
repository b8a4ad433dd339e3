"""From trunk to d: the pooling windows, and the two parts of a model."""

from math import ceil, floor

import pytest
import torch
from torch import nn

from fedsaf.models.split import SplitModel, pool_features


@pytest.mark.parametrize("feature_dim", [512, 64, 10])
@pytest.mark.parametrize("width", [1, 64, 84, 100, 128, 256, 512, 768, 1024, 1280, 2048])
def test_windows_are_those_of_the_definition(width, feature_dim):
    features = torch.randn(3, width, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    pooled = pool_features(features, feature_dim)
    for j in range(feature_dim):
        window = features[:, floor(j * width / feature_dim) : ceil((j + 1) * width / feature_dim)]
        torch.testing.assert_close(pooled[:, j], window.mean(dim=1), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(pooled, nn.functional.adaptive_avg_pool1d(features, feature_dim))


@pytest.mark.parametrize("width", [64, 100, 256, 768, 1280, 2048])
def test_gradient_is_that_of_adaptive_pooling(width):
    features = torch.randn(
        2, width, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True
    )
    weights = torch.randn(2, 512, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    (own,) = torch.autograd.grad((pool_features(features, 512) * weights).sum(), features)
    (torchs,) = torch.autograd.grad((nn.functional.adaptive_avg_pool1d(features, 512) * weights).sum(), features)
    torch.testing.assert_close(own, torchs)


@pytest.mark.parametrize(("width", "rank"), [(64, 64), (100, 100), (128, 128), (256, 256), (512, 512), (768, 512)])
def test_width_bounds_the_rank(width, rank):
    features = torch.randn(600, width, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.linalg.matrix_rank(pool_features(features, 512)) == rank


def test_evaluation_before_training_does_not_spoil_the_gradient():
    with torch.inference_mode():
        pool_features(torch.zeros(2, 7), 3)
    features = torch.ones(2, 7, requires_grad=True)
    pool_features(features, 3).sum().backward()
    assert features.grad.sum().item() == pytest.approx(6)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_deterministic_algorithms_on_a_gpu():
    torch.use_deterministic_algorithms(True)
    try:
        features = torch.randn(64, 1280, generator=torch.Generator().manual_seed(0)).cuda().requires_grad_()
        gradients = [torch.autograd.grad(pool_features(features, 512).square().sum(), features)[0] for _ in range(5)]
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(gradients[0], other) for other in gradients)


def test_equal_width_is_passed_through():
    features = torch.ones(2, 512)
    assert pool_features(features, 512) is features


class Trunk(nn.Linear):
    """A trunk of 4 features over flat inputs of 3."""

    num_features = 4

    def __init__(self):
        super().__init__(3, 4)


def test_logits_are_the_head_of_z():
    torch.manual_seed(0)
    model = SplitModel(Trunk(), nn.Linear(2, 5), feature_dim=2)
    x = torch.randn(6, 3)
    z, logits = model(x)
    torch.testing.assert_close(z, model.backbone(x).view(6, 2, 2).mean(2))
    torch.testing.assert_close(logits, model.head(z))
    assert {name.split(".")[0] for name, _ in model.named_parameters()} == {"backbone", "head"}


def test_linear_map_lifts_the_rank_limit():
    torch.manual_seed(0)
    model = SplitModel(Trunk(), nn.Linear(8, 5), feature_dim=8, feature_map="linear")
    z, logits = model(torch.randn(6, 3))
    assert z.shape == (6, 8)
    logits.sum().backward()
    assert model.projection.weight.grad is not None
    with pytest.raises(ValueError, match="feature_map='mean'"):
        SplitModel(Trunk(), nn.Linear(8, 5), feature_dim=8, feature_map="mean")
