"""Every file under conf/ composes and instantiates; the list comes from the folder, so a new file is covered."""

import re
from functools import reduce
from operator import getitem
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf

from fedsaf.core.config import check, config_hash, flatten, identity, is_derived, run_name

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
    """A file of ``scale_<group>`` is chosen by that group and the scale together; of validation, by the data set too.

    Of ``paper_<group>`` and ``scenario_<group>`` it is chosen by both words, in this order.
    """
    if not is_derived(group):
        return [f"{group}={choice}", *NEEDS.get(choice, [])]
    if not group.startswith("scale_"):
        first, second = group.split("_")
        known = [path.stem for path in (CONF / first).glob("*.yaml")]
        name = max((one for one in known if choice.startswith(f"{one}_")), key=len)
        return [f"{first}={name}", f"{second}={choice.removeprefix(f'{name}_')}"]
    (base, _, scale), group = choice.rpartition("_"), group.removeprefix("scale_")
    if group != "validation":
        return [f"{group}={base}", f"scale={scale}"]
    name = max((path.stem for path in (CONF / "dataset").glob("*.yaml") if base.endswith(f"_{path.stem}")), key=len)
    return [f"{group}={base.removesuffix(f'_{name}')}", f"dataset={name}", f"scale={scale}"]


@pytest.mark.parametrize(("group", "choice"), FILES, ids=lambda value: value)
def test_every_file_composes_is_accepted_and_instantiates(group, choice):
    config = composed(*words_of(group, choice))
    if is_derived(group):
        content = OmegaConf.to_container(OmegaConf.load(CONF / group / f"{choice}.yaml"))
        (package,) = re.findall("# @package (.*)", text_of(group, choice))
        node = config if package == "_global_" else reduce(getitem, package.split("."), config)
        assert dict(flatten(content)).items() <= dict(flatten(node)).items(), "the file is not read"
    check(config, {})
    for part in ("dataset", "partition", "model_group", "method", "optimizer", "fabric", "logger"):
        made = instantiate(config[part], _convert_="all")
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


def test_identity_ignores_how_a_run_is_carried_out():
    base = composed()
    same = composed("fabric.devices=2", "fabric.threads=1", "logger=none", "force=true", "results_root=elsewhere")
    assert config_hash(base) == config_hash(same)
    for word in (
        "seed=1",
        "rounds=11",
        "alignment.inst_weight=0.5",
        "fabric.precision=bf16-mixed",
        "dataset.image_size=16",
    ):
        assert config_hash(composed(word)) != config_hash(base), word


def test_a_preset_and_its_value_typed_out_are_the_same_run():
    assert config_hash(composed("partition=dirichlet_0.1")) == config_hash(
        composed("partition=dirichlet", "partition.alpha=0.1")
    )


def test_identity_keeps_everything_else():
    config = composed()
    dropped = set(dict(flatten(config))) - set(dict(flatten(identity(config))))
    own = {key for key in dropped if "." in key and not key.startswith(("fabric.", "logger."))}
    assert own == {"dataset.memory_limit_gib"}  # the same pixels, wherever they lie
    assert {"seed", "rounds", "num_clients", "batch_size"} <= set(identity(config))


def test_the_name_of_a_run_tells_its_choices_and_only_those_it_reads():
    choices = dict(
        dataset="digits", partition="iid", model_group="small", method="local", alignment="rcsa", prototype="mean"
    )
    assert run_name(composed("method=local"), choices).startswith("digits_iid_small_local_seed0_")
    choices["method"] = "prototype"
    assert run_name(composed(), choices).startswith("digits_iid_small_prototype_rcsa_mean_seed0_")
    choices["method"] = "fedtsp"
    assert run_name(composed("method=fedtsp"), choices).startswith("digits_iid_small_fedtsp_lexical_seed0_")
