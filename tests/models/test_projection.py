"""The projection head of MOON and FedProc, and models that are never trained."""

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from torch import nn

from fedsaf.core.types import ImageFacts
from fedsaf.methods.auxiliary_model import Frozen
from fedsaf.models.projection import build_feature_map
from fedsaf.models.split import SplitModel
from tests.federation.harness import CONF


def moon_group(name):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return instantiate(compose("train", overrides=[f"model_group={name}"]).model_group, _convert_="all")


def test_the_network_for_cifar10_has_the_layers_of_the_paper():
    """Convolutions 5 x 5 to 6 and 16 channels, layers 400-120-84, projection 84-84-256, classifier 256-10."""
    model = moon_group("moon_cnn").build(0, 10, ImageFacts(3, 32, (0.5,) * 3, (0.5,) * 3, ""))
    shapes = [tuple(p.shape) for p in model.parameters() if p.ndim > 1]
    assert shapes == [(6, 3, 5, 5), (16, 6, 5, 5), (120, 400), (84, 120), (10, 256), (84, 84), (256, 84)]
    assert [type(layer) for layer in model.projection] == [nn.Linear, nn.ReLU, nn.Linear]


def test_the_network_for_cifar100_keeps_the_resolution_in_its_stem():
    group = moon_group("moon_resnet50")
    assert (group.architectures, group.small_stem, group.feature_map) == (("resnet50",), True, "projection")
    assert group.feature_dim == 256


def test_the_classifier_reads_the_projection():
    class Trunk(nn.Module):
        num_features = 3

        def forward(self, x):
            return x.flatten(1)

    torch.manual_seed(0)
    model = SplitModel(Trunk(), nn.Linear(5, 2), feature_dim=5, feature_map="projection")
    x = torch.randn(4, 3, 1, 1)
    z, logits = model(x)
    first, _, last = model.projection
    by_hand = (x.flatten(1) @ first.weight.T + first.bias).clamp_min(0) @ last.weight.T + last.bias
    torch.testing.assert_close(z, by_hand)
    torch.testing.assert_close(model.features(x), z)
    torch.testing.assert_close(logits, model.head(by_hand))


def test_unknown_maps_are_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="pool, linear, projection"):
        build_feature_map("mlp", 3, 5)
    assert build_feature_map("pool", 3, 5) is None


def test_a_frozen_copy_neither_learns_nor_follows():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).train()
    frozen = Frozen.copy_of(model)
    assert model.training
    assert all(p.requires_grad for p in model.parameters())
    nn.ModuleList([frozen]).train()
    assert not any(module.training for module in frozen.modules())
    assert not any(p.requires_grad for p in frozen.parameters())
    with torch.no_grad():
        model[0].weight.add_(1)
    assert not torch.equal(frozen.model[0].weight, model[0].weight)
    assert not frozen.taken
    frozen.take(model)
    assert torch.equal(frozen.model[0].weight, model[0].weight)
    assert frozen.taken
    assert not any(p.requires_grad for p in frozen.parameters())
    with torch.no_grad():
        model[0].weight.add_(1)
    assert not torch.equal(frozen.model[0].weight, model[0].weight), "taken by value"
