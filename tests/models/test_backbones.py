"""Trunks: exact sizes, one contract, initial weights, stems, names."""

import pickle
from functools import cache

import pytest
import timm
import torch
import torchvision
from torch import nn

from fedsaf.models.backbones import ARCHITECTURES, find_architecture
from fedsaf.models.trial import measured_width

# name, image size, W, learnable parameters, buffers: the counts of the published networks without classifier
CONVOLUTIONAL = [
    ("resnet4", 32, 64, 83_520, 387),
    ("resnet6", 32, 128, 313_664, 1_158),
    ("resnet8", 32, 256, 1_232_704, 2_697),
    ("resnet10", 32, 512, 4_905_792, 5_772),
    ("resnet18", 32, 512, 11_176_512, 9_620),
    ("resnet34", 32, 512, 21_284_672, 17_060),
    ("resnet50", 32, 2048, 23_508_032, 53_173),
    ("resnet101", 32, 2048, 42_500_160, 105_448),
    ("resnet152", 32, 2048, 58_143_808, 151_579),
    ("googlenet", 32, 1024, 5_599_904, 14_617),
    ("mobilenetv2", 32, 1280, 2_223_872, 34_164),
]
SIZES = [
    ("cnn", 32, 512, 873_408, 0),
    ("cnn", 64, 512, 5_592_000, 0),
    ("simple_cnn", 32, 84, (75 * 6 + 6) + (150 * 16 + 16) + (400 * 120 + 120) + (120 * 84 + 84), 0),
    *CONVOLUTIONAL,
    ("vit_b_16", 32, 768, 85_651_200, 0),
    ("vit_b_32", 32, 768, 87_418_368, 0),
    ("vit_b_16", 64, 768, 85_660_416, 0),
    ("vit_b_32", 64, 768, 87_420_672, 0),
    # their parameters do not depend on the size
    *(row[:1] + (64,) + row[2:] for row in CONVOLUTIONAL),
]


@cache
def build_on_meta(name, in_channels=3, image_size=32, small_stem=False):
    with torch.device("meta"):
        return find_architecture(name).build(in_channels, image_size, small_stem)


@pytest.mark.parametrize(("name", "image_size", "width", "parameters", "buffers"), SIZES)
def test_sizes(name, image_size, width, parameters, buffers):
    trunk = build_on_meta(name, image_size=image_size)
    assert sum(p.numel() for p in trunk.parameters()) == parameters
    assert sum(b.numel() for b in trunk.buffers()) == buffers
    assert trunk.num_features == width
    images = torch.empty(2, 3, image_size, image_size, device="meta")
    assert trunk.eval()(images).shape == (2, width)


def test_every_architecture_has_a_size_row():
    assert {row[0] for row in SIZES} == set(ARCHITECTURES)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_batch_norm_flag_is_true_to_the_network(name):
    found = any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in build_on_meta(name).modules())
    assert ARCHITECTURES[name].batch_norm == found


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_smallest_images(name):
    architecture = ARCHITECTURES[name]
    size = architecture.min_image_size
    architecture.check_images(1, size)
    trunk = build_on_meta(name, 1, size).eval()
    assert trunk(torch.empty(2, 1, size, size, device="meta")).shape == (2, trunk.num_features)
    with pytest.raises(ValueError, match=f"'{name}' needs at least"):
        architecture.check_images(1, size - 1)


@pytest.mark.parametrize("name", ["cnn", "simple_cnn", "googlenet"])
def test_below_the_smallest_size_the_network_really_fails(name):
    size = ARCHITECTURES[name].min_image_size - 1
    with pytest.raises((ValueError, RuntimeError), match="size"):
        build_on_meta(name, image_size=size)(torch.empty(2, 3, size, size, device="meta"))


def test_vit_refuses_images_it_would_crop():
    with pytest.raises(ValueError, match="multiple of its patch size 16; the next is 32"):
        ARCHITECTURES["vit_b_16"].check_images(3, 28)


@pytest.mark.parametrize(
    ("name", "layer"),
    [("resnet18", "layer1"), ("resnet4", "layer1"), ("googlenet", "inception3a"), ("mobilenetv2", "bn1")],
)
def test_small_stem_keeps_the_resolution(name, layer):
    sides = {}
    for small_stem in (False, True):
        trunk = build_on_meta(name, 1, 32, small_stem)
        trunk.get_submodule(layer).register_forward_hook(
            lambda module, inputs, output, key=small_stem: sides.update({key: output.shape[-1]})
        )
        assert trunk.eval()(torch.empty(2, 1, 32, 32, device="meta")).shape == (2, trunk.num_features)
    assert sides[True] == 32
    assert sides[False] <= 16


@pytest.mark.parametrize("name", ["cnn", "vit_b_32"])
def test_small_stem_leaves_networks_without_a_stem_alone(name):
    assert str(build_on_meta(name, small_stem=True)) == str(build_on_meta(name))


def test_small_stem_needs_a_definition_and_random_weights():
    with pytest.raises(ValueError, match="'lcnet_035' has no small stem"):
        find_architecture("lcnet_035").check_small_stem(pretrained=False)
    with pytest.raises(ValueError, match="small_stem or pretrained"):
        ARCHITECTURES["resnet18"].check_small_stem(pretrained=True)


@pytest.mark.parametrize("name", ["resnet10", "resnet18"])
def test_no_residual_branch_starts_at_zero(name):
    torch.manual_seed(0)
    norms = [m for m in ARCHITECTURES[name].build(3, 32).modules() if isinstance(m, nn.BatchNorm2d)]
    assert all((norm.weight == 1).all() for norm in norms)


def test_mobilenet_starts_like_torchvision():
    torch.manual_seed(0)

    def deviations(model):
        return torch.tensor([m.weight.std().item() for m in model.modules() if isinstance(m, nn.Conv2d)])

    own, reference = (
        deviations(ARCHITECTURES["mobilenetv2"].build(3, 32)),
        deviations(torchvision.models.mobilenet_v2()),
    )
    # 288 weights in the smallest layer: the ratio of two sample deviations is within five standard errors of 1 (0.042)
    torch.testing.assert_close(own, reference, rtol=0.2, atol=0)


def test_vit_starts_like_torchvision():
    torch.manual_seed(0)
    own = timm.create_model("vit_tiny_patch16_224", img_size=32, num_classes=0, depth=1)
    for architecture in ("vit_b_16", "vit_b_32"):
        ARCHITECTURES[architecture].initialise(own)
    reference = torchvision.models.VisionTransformer(32, 16, num_layers=1, num_heads=3, hidden_dim=192, mlp_dim=768)
    own_block, block = own.blocks[0], reference.encoder.layers[0]
    pairs = [
        (own.patch_embed.proj, reference.conv_proj),
        (own_block.attn.proj, block.self_attention.out_proj),
        (own_block.mlp.fc1, block.mlp[0]),
        (own_block.mlp.fc2, block.mlp[3]),
    ]
    weights = [(a.weight, b.weight) for a, b in pairs]
    weights += [(own_block.attn.qkv.weight, block.self_attention.in_proj_weight)]
    weights += [(own.pos_embed, reference.encoder.pos_embedding)]
    for a, b in weights:
        assert a.shape == b.shape
        # 960 weights in the smallest (positions): standard error of the ratio 0.032
        assert a.std().item() == pytest.approx(b.std().item(), rel=0.12)
    assert not own.cls_token.any()
    for a, b in pairs:
        assert a.bias.std().item() == pytest.approx(b.bias.std().item(), rel=0.25)


def test_googlenet_starts_alike_for_any_number_of_channels():
    torch.manual_seed(0)
    for in_channels in (1, 3):
        weight = ARCHITECTURES["googlenet"].build(in_channels, 32).conv1.conv.weight
        assert weight.shape == (64, in_channels, 7, 7)
        assert weight.std().item() == pytest.approx(0.01, rel=0.1)


@pytest.mark.parametrize("name", ["googlenet", "mobilenetv2"])
def test_dropout_makes_training_features_noisy(name):
    torch.manual_seed(0)
    trunk = ARCHITECTURES[name].build(3, 32)
    x = torch.randn(8, 3, 32, 32)
    features = trunk(x)
    assert 0.1 < (features == 0).float().mean() < 0.9
    assert not torch.equal(features, trunk(x))
    assert torch.equal(trunk.eval()(x), trunk(x))


@pytest.mark.parametrize("name", ["resnet4", "resnet10", "googlenet", "cnn", "simple_cnn"])
def test_own_networks_are_known_to_timm(name):
    assert timm.is_model(name)
    assert timm.create_model(name, in_chans=1, num_classes=0)(torch.zeros(2, 1, 32, 32)).ndim == 2


def test_any_model_of_timm_may_be_named():
    torch.manual_seed(0)
    architecture = find_architecture("lcnet_035")
    architecture.check_images(1, 32)
    assert architecture.batch_norm
    assert 0 < architecture.cost < ARCHITECTURES["resnet18"].cost
    trunk = architecture.build(1, 32)
    assert trunk.eval()(torch.zeros(2, 1, 32, 32)).shape == (2, trunk.num_features)


def test_the_width_of_a_model_of_timm_is_what_it_puts_out():
    trunk = find_architecture("mobilenetv3_small_050").build(3, 32)
    features = sum(p.numel() for p in trunk.parameters())
    assert trunk.num_features == 1024, "timm's own num_features is 288 here, before the last convolution"
    assert trunk.training
    assert find_architecture("mobilenetv3_small_050").cost == pytest.approx(features / 11_176_512)


def test_a_trial_leaves_the_random_stream_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    find_architecture("convnext_atto").check_images(3, 32)
    with pytest.raises(ValueError, match="convnext_atto"):
        find_architecture("convnext_atto").check_images(3, 28)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    ("name", "size", "answer"),
    [
        ("vit_tiny_patch16_224", 8, "'vit_tiny_patch16_224' needs at least 16"),
        ("vit_tiny_patch16_224", 28, "multiple of its patch size 16; the next is 32"),
        ("vgg11", 31, "'vgg11' cannot read 3 x 31 x 31 images; it reads dataset.image_size=32"),
        ("xcit_nano_12_p8_224", 28, "'xcit_nano_12_p8_224' cannot read .*; it reads dataset.image_size=8"),
    ],
)
def test_impossible_images_for_a_model_of_timm_are_refused_with_its_name_and_a_size_that_works(name, size, answer):
    architecture = find_architecture(name)
    with pytest.raises(ValueError, match=answer):
        architecture.check_images(3, size)
    architecture.check_images(3, int(answer.rsplit("=" if "=" in answer else " ", 1)[1]))


def test_a_network_that_puts_out_no_vector_is_refused():
    with pytest.raises(ValueError, match="2 x 6 x 1 x 1 for two images, expected one vector"):
        measured_width(nn.Conv2d(3, 6, 1), 3, 1)


@pytest.mark.parametrize(
    ("wrong", "right"), [("resnet_18", "resnet18"), ("googelnet", "googlenet"), ("lcnet_35", "lcnet_035")]
)
def test_unknown_name_suggests_the_nearest(wrong, right):
    with pytest.raises(ValueError, match=rf"'{wrong}'.*\b{right}\b"):
        find_architecture(wrong)


@pytest.mark.parametrize("name", [*ARCHITECTURES, "lcnet_035"])
def test_architectures_travel_between_processes(name):
    assert pickle.loads(pickle.dumps(find_architecture(name))) == find_architecture(name)
