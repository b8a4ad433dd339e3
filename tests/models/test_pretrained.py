"""Pretrained weights: found in a folder or in the cache, and missed quickly."""

import time

import huggingface_hub.constants
import pytest
import timm
import torch
from safetensors.torch import save_file

from fedsaf.models import pretrained
from fedsaf.models.backbones import find_architecture

REPOSITORY = "timm/resnet18.a1_in1k"


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    """An empty Hugging Face cache, and a hub whose name does not resolve."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "https://hub.invalid")
    monkeypatch.setattr(
        huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", "https://hub.invalid/{repo_id}/{revision}/{filename}"
    )
    return tmp_path / "hub"


def save_weights(path):
    """Write what timm hosts: a ResNet-18 with its classifier of 1000 classes."""
    path.parent.mkdir(parents=True)
    torch.manual_seed(7)
    state = timm.create_model("resnet18").state_dict()
    save_file(state, path)
    return state


def test_missing_weights_fail_at_once_and_say_how_to_give_them(empty_cache):
    start = time.monotonic()
    with pytest.raises(FileNotFoundError) as caught:
        find_architecture("resnet18").find_weights(folder=None)
    assert time.monotonic() - start < 5  # of which 2 s at most wait for the hub; timm alone retries for 45 s
    for part in ("'resnet18'", "model.safetensors", REPOSITORY, "HF_HOME", "pretrained_path", "copy its cache"):
        assert part in str(caught.value)


def test_a_silent_name_server_counts_as_no_answer(empty_cache, monkeypatch):
    monkeypatch.setattr(pretrained, "_HUB_TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr(pretrained, "get_hf_file_metadata", lambda *args, **kwargs: time.sleep(3))
    start = time.monotonic()
    with pytest.raises(FileNotFoundError, match="does not answer"):
        find_architecture("resnet18").find_weights(folder=None)
    assert time.monotonic() - start < 2


def test_prepared_cache_is_used_without_asking_the_hub(empty_cache, monkeypatch):
    monkeypatch.setattr(pretrained, "_hub_answers", lambda *args: pytest.fail("asked the hub"))
    repository = empty_cache / "models--timm--resnet18.a1_in1k"
    state = save_weights(repository / "snapshots" / "abc" / "model.safetensors")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    architecture = find_architecture("resnet18")
    trunk = architecture.build(3, 32, weights=architecture.find_weights(folder=None))
    assert torch.equal(trunk.conv1.weight, state["conv1.weight"])
    assert torch.equal(trunk.layer4[1].bn2.running_var, state["layer4.1.bn2.running_var"])


def test_folder_serves_networks_and_grey_images_too(tmp_path):
    state = save_weights(tmp_path / "weights" / "resnet18.safetensors")
    architecture = find_architecture("resnet18")
    trunk = architecture.build(1, 32, weights=architecture.find_weights(str(tmp_path / "weights")))
    torch.testing.assert_close(trunk.conv1.weight, state["conv1.weight"].sum(1, keepdim=True))
    with pytest.raises(FileNotFoundError, match="'mobilenetv2.safetensors'"):
        find_architecture("mobilenetv2").find_weights(str(tmp_path / "weights"))


@pytest.mark.parametrize("name", ["cnn", "resnet10", "googlenet"])
def test_networks_without_hosted_weights_refuse(name):
    with pytest.raises(ValueError, match=f"no weights for '{name}'"):
        find_architecture(name).find_weights(folder=None)
