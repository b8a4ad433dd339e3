"""Groups: every file of conf/model_group, the assignment, and what is refused."""

import pickle
from functools import cache
from pathlib import Path

import pytest
import timm
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from safetensors.torch import save_file

from fedsaf.core.types import CountFacts, ImageFacts, TokenFacts
from fedsaf.models.image_group import ImageGroup, TimmGroup

CONF = Path(__file__).parents[2] / "conf"


def images(channels, size):
    return ImageFacts(channels, size, (0.5,) * channels, (0.5,) * channels, "")


GROUPS = sorted(path.stem for path in (CONF / "model_group").glob("*.yaml"))
NEEDS = {"timm": ["model_group.backbones=[resnet18,mobilenetv3_small_100,vit_tiny_patch16_224]"]}
FACTS = {ImageFacts: images(3, 32), TokenFacts: TokenFacts(9, 30), CountFacts: CountFacts(40)}
IMAGE_GROUPS = [name for name in GROUPS if "txt" not in name and "mlp" not in name]
OPTIONS = {
    "name": "test",
    "feature_dim": 16,
    "feature_map": "pool",
    "small_stem": False,
    "final_relu": False,
    "pretrained": False,
    "pretrained_path": None,
    "memory_format": "auto",
}


@cache
def load(name):
    with initialize_config_dir(str(CONF), version_base=None):
        config = compose("train", overrides=[f"model_group={name}", "feature_dim=512", *NEEDS.get(name, [])])
    return instantiate(config.model_group, _convert_="all")


def draw(facts, n):
    """n random inputs as a model reads them; every token of the vocabulary beside padding occurs."""
    if isinstance(facts, TokenFacts):
        return torch.arange(n * facts.length).reshape(n, facts.length) % facts.num_tokens
    return torch.rand(n, *facts.shape)


def pairs_of_architecture_and_head():
    """One (group, client) for each architecture with each head it has somewhere."""
    found = {}
    for name in GROUPS:
        group = load(name)
        for client in range(len(group.architectures) * len(group.heads)):
            found.setdefault((group.architecture_of(client).name, group.head_of(client)), (name, client))
    # every head of ResNet-34 and of CNN-4; elsewhere the head changes nothing about the trunk
    return {key: place for key, place in found.items() if key[0] in ("resnet34", "cnn") or not key[1].startswith("htc")}


CONTRACT = [
    pytest.param(*place, id="-".join(key), marks=pytest.mark.slow if load(place[0]).cost_of(place[1]) > 2 else ())
    for key, place in pairs_of_architecture_and_head().items()
]


@pytest.mark.parametrize(("name", "client"), CONTRACT)
def test_contract(name, client):
    torch.manual_seed(0)
    group = load(name)
    facts = images(1, 32) if name == "small" else FACTS[group.reads]
    layout = group.memory_format_of(client, 100)
    model = group.build(client, 10, facts).to(memory_format=layout)
    x = draw(facts, 3).contiguous(memory_format=layout)
    z, logits = model(x)
    assert z.shape == (3, 512)
    assert logits.shape == (3, 10)
    torch.nn.functional.cross_entropy(logits, torch.tensor([0, 1, 2])).backward()
    silent = [key for key, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    # the backward direction of the BiLSTM is read after its first step, before which its state is zero
    assert silent == ["backbone.rnn.weight_hh_l0_reverse"] * (group.architecture_of(client).name == "bilstm")
    assert all(p.grad.isfinite().all() for p in model.parameters())
    z, logits = model.eval()(x[:1])
    assert z.isfinite().all()
    assert logits.isfinite().all()


@pytest.mark.parametrize("name", GROUPS)
def test_group_files(name):
    group = load(name)
    group.check(batch_size=10, inputs=FACTS[group.reads])
    assert group.feature_dim == 512
    assert not getattr(group, "pretrained", False)
    for client in range(len(group.architectures)):
        assert group.architecture_of(client).name == group.architectures[client]
        assert group.architecture_of(client + 2 * len(group.architectures)) == group.architecture_of(client)
        assert group.cost_of(client) > 0


@pytest.mark.parametrize("name", GROUPS)
def test_inputs_of_another_kind_are_refused_with_a_group_that_reads_them(name):
    group = load(name)
    fitting = {ImageFacts: "htfe9", TokenFacts: "htfe6_txt", CountFacts: "amazon_mlp"}
    for kind, facts in FACTS.items():
        if kind is not group.reads:
            with pytest.raises(
                ValueError, match=rf"{group.name} reads .*, but .* have {facts}; take model_group=(\w+)"
            ) as e:
                group.check(batch_size=10, inputs=facts)
            choice = str(e.value).rsplit("=", 1)[1].rstrip(".")
            assert choice == fitting[kind]
            load(choice).check(batch_size=10, inputs=facts)


@pytest.mark.parametrize("name", GROUPS)
def test_the_small_model_is_the_first_architecture_and_cnn4_in_htc_groups(name):
    group = load(name)
    assert group.auxiliary == ("cnn" if name.endswith("htc4") else group.architectures[0])
    group.check_architecture(group.auxiliary, FACTS[group.reads])


def test_only_groups_of_images_ever_leave_the_usual_layout():
    for name in set(GROUPS) - set(IMAGE_GROUPS):
        assert load(name).memory_format_of(0, 100) == torch.contiguous_format


@pytest.mark.parametrize("side", [32, 64])
@pytest.mark.parametrize("name", IMAGE_GROUPS)
def test_every_group_of_images_takes_the_sizes_of_the_papers(name, side):
    load(name).check(batch_size=10, inputs=images(3, side))


def test_any_models_of_timm_make_a_group():
    torch.manual_seed(0)
    group = load("timm")
    group.check(10, images(1, 48))
    for client, (name, width) in enumerate(
        [("resnet18", 512), ("mobilenetv3_small_100", 1024), ("vit_tiny_patch16_224", 192)]
    ):
        model = group.build(client, 7, images(1, 48))
        assert (group.architecture_of(client).name, model.backbone.num_features) == (name, width)
        assert [part.shape for part in model.eval()(torch.zeros(2, 1, 48, 48))] == [(2, 512), (2, 7)]


def timm_group(*backbones, **changes):
    return TimmGroup(backbones=backbones, heads=["linear"], **(OPTIONS | changes))


def test_a_group_of_timm_models_needs_names_that_timm_knows():
    with pytest.raises(ValueError, match=r"model_group.backbones is empty.*backbones=\[resnet18"):
        timm_group()
    with pytest.raises(ValueError, match="'mobilenetv3_smal_100'.*mobilenetv3_small_100"):
        timm_group("resnet18", "mobilenetv3_smal_100")


def test_pretrained_models_of_timm_come_from_a_folder(tmp_path):
    torch.manual_seed(3)
    state = timm.create_model("vit_tiny_patch16_224").state_dict()
    save_file(state, tmp_path / "vit_tiny_patch16_224.safetensors")
    group = timm_group("vit_tiny_patch16_224", pretrained=True, pretrained_path=str(tmp_path))
    group.check(10, images(1, 32))
    trunk = group.build(0, 10, images(1, 32)).backbone
    assert torch.equal(trunk.blocks[3].mlp.fc1.weight, state["blocks.3.mlp.fc1.weight"])
    assert trunk.pos_embed.shape == (1, 5, 192), "positions are resampled to 2 x 2 patches and the class token"
    with pytest.raises(FileNotFoundError, match="mobilenetv3_small_100.safetensors"):
        timm_group("mobilenetv3_small_100", pretrained=True, pretrained_path=str(tmp_path)).check(10, images(3, 32))


def test_vit_clients_have_the_head_of_two_layers():
    for name in ("htm4", "htm10"):
        group = load(name)
        for client in range(2 * len(group.architectures)):
            assert (group.head_of(client) == "vit") == group.architecture_of(client).name.startswith("vit")


def test_group_of_cnn_and_resnet_at_cifar_100():
    sizes = [sum(p.numel() for p in load("htfe2").build(client, 100, images(3, 32)).parameters()) for client in (0, 1)]
    assert sizes == [924_708, 11_176_512 + 51_300]


def group_of(architectures=("cnn", "resnet4"), heads=("linear",), **changes):
    return ImageGroup(architectures=architectures, heads=heads, **(OPTIONS | changes))


def test_init_key_tells_shapes_apart_and_nothing_else():
    group = group_of(["cnn", "resnet4", "cnn"], ["htc0", "htc1"])
    keys = [group.init_key(client) for client in range(12)]
    shapes = [(group.architecture_of(client).name, group.head_of(client)) for client in range(12)]
    for a in range(12):
        for b in range(12):
            assert (keys[a] == keys[b]) == (shapes[a] == shapes[b])


def test_weights_come_from_the_ambient_generator_alone():
    group = group_of()
    models = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        models.append(group.build(1, 10, images(1, 32)).state_dict())
    assert all(torch.equal(models[0][key], models[1][key]) for key in models[0])
    assert not torch.equal(models[0]["backbone.conv1.weight"], models[2]["backbone.conv1.weight"])


def test_layout_can_be_forced():
    assert group_of(memory_format="channels_last").memory_format_of(0, 1) == torch.channels_last
    assert group_of(memory_format="contiguous").memory_format_of(1, 100) == torch.contiguous_format


@pytest.mark.parametrize(
    ("architecture", "small_batch", "large_batch"),
    [("cnn", True, True), ("resnet18", False, True), ("vit_b_16", False, False)],
)
def test_layout_follows_architecture_and_batch(architecture, small_batch, large_batch):
    group = group_of([architecture])
    for batch_size, expected in ((10, small_batch), (100, large_batch)):
        assert (group.memory_format_of(0, batch_size) == torch.channels_last) == expected


def test_layouts_give_equal_outputs():
    x = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    outputs = []
    for layout in (torch.contiguous_format, torch.channels_last):
        torch.manual_seed(1)
        model = group_of(["resnet6"]).build(0, 10, images(3, 32)).to(memory_format=layout)
        outputs.append(model(x.contiguous(memory_format=layout))[1])
    # the same float32 sums in another order
    torch.testing.assert_close(outputs[0], outputs[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", GROUPS)
def test_groups_travel_to_other_processes(name):
    group = load(name)
    copy = pickle.loads(pickle.dumps(group))
    assert vars(copy) == vars(group)
    assert copy.architecture_of(3) == group.architecture_of(3)


@pytest.mark.parametrize("image_size", [16, 28, 64])
@pytest.mark.parametrize("in_channels", [1, 3])
def test_small_group_takes_any_small_image(in_channels, image_size):
    torch.manual_seed(0)
    group = load("small")
    group.check(10, images(in_channels, image_size))
    for client in range(len(group.architectures)):
        z, _ = group.build(client, 10, images(in_channels, image_size))(
            torch.randn(2, in_channels, image_size, image_size)
        )
        assert z.shape == (2, 512)


def test_batch_of_one_with_batch_norm_is_refused_with_the_model():
    with pytest.raises(ValueError, match="batch_size=1.*'resnet4'"):
        group_of().check(batch_size=1, inputs=images(3, 32))
    group_of(["cnn"]).check(batch_size=1, inputs=images(3, 32))


def test_images_too_small_are_refused_with_the_model():
    with pytest.raises(ValueError, match="image_size=8.*'cnn'.*16"):
        group_of().check(batch_size=10, inputs=images(1, 8))
    with pytest.raises(ValueError, match="in_channels=0.*'cnn'"):
        group_of().check(batch_size=10, inputs=images(0, 32))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": []}, "architectures is empty"),
        ({"heads": []}, "heads is empty"),
        ({"architectures": ["resnet_18"]}, "nearest: .*resnet18"),
        ({"heads": ["lineal"]}, "nearest: linear"),
        ({"feature_dim": 0}, "feature_dim=0"),
        ({"feature_map": "mlp"}, "feature_map='mlp'"),
        ({"memory_format": "nhwc"}, "memory_format='nhwc'.*channels_last"),
        ({"final_relu": True}, "final_relu=true"),
        ({"pretrained_path": "weights"}, "pretrained is false"),
        ({"architectures": ["resnet18"], "pretrained": True, "small_stem": True}, "small_stem or pretrained"),
    ],
)
def test_contradictions_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        group_of(**changes)


def test_pretrained_is_refused_before_training_where_nobody_hosts_it():
    with pytest.raises(ValueError, match="no weights for 'cnn'"):
        group_of(["cnn"], pretrained=True).check(batch_size=10, inputs=images(3, 32))
