"""Every file under conf/ composes and instantiates; the list comes from the folder, so a new file is covered."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from fedsaf.assembly import build
from fedsaf.core.config import check

CONF = Path(__file__).resolve().parents[2] / "conf"
FILES = sorted((path.parent.name, path.stem) for path in CONF.glob("*/*.yaml"))
NEEDS = {
    "parquet": ["dataset.path=images.parquet"],
    "imagefolder": ["dataset.path=images"],
    "timm": ["model_group.backbones=[resnet18]"],
    "dirichlet": ["partition.alpha=0.3"],
}


def text_of(group, choice):
    return (CONF / group / f"{choice}.yaml").read_text()


def composed(*words):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return OmegaConf.to_container(compose("train", overrides=list(words)), resolve=True)


def words_of(group, choice):
    return [f"{group}={choice}", *NEEDS.get(choice, [])]


@pytest.mark.parametrize("scale", [None, "smoke", "small", "full"])
@pytest.mark.parametrize("model_group", sorted(path.stem for path in (CONF / "model_group").glob("*.yaml")))
def test_a_group_has_networks_and_heads_at_every_scale(model_group, scale):
    words = [*words_of("model_group", model_group), *([f"scale={scale}"] if scale else [])]
    group = build(composed(*words), "model_group")
    assert group.architectures
    assert group.heads


@pytest.mark.parametrize(("group", "choice"), FILES, ids=lambda value: value)
def test_every_file_composes_is_accepted_and_instantiates(group, choice):
    config = composed(*words_of(group, choice))
    check(config, {})
    for part in ("dataset", "partition", "model_group", "method", "optimizer", "fabric", "logger"):
        made = build(config, part)
        assert type(made).__module__.startswith("fedsaf.") or callable(made), part


def test_every_file_says_what_it_is():
    for path in CONF.rglob("*.yaml"):
        lines = [line for line in path.read_text().splitlines() if not line.startswith("# @package")]
        assert lines[0].startswith("# "), f"{path} has no first line that says what it is"


def test_every_key_is_read():
    """Keys of a group are arguments of its target, or are read by an interpolation or by name; nothing lies idle."""
    text = "".join(path.read_text() for path in CONF.rglob("*.yaml"))
    code = "".join(path.read_text() for path in (CONF.parent / "src").rglob("*.py"))
    config = composed()
    for group in ("protocol", "alignment"):
        for key in config[group]:
            assert f"${{{group}.{key}}}" in text or f'protocol["{key}"]' in code or f"{key}: " in code, f"{group}.{key}"
    for key, value in config.items():
        if not isinstance(value, dict):
            assert f'"{key}"' in code or f"{key}: " in code or f"${{{key}}}" in text, key
