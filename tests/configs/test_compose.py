"""Every file under conf/ composes and instantiates at every scale; a new file is covered by being there."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedsaf.assembly import build
from fedsaf.core.config import check, resolved
from fedsaf.core.identity import INCIDENTAL, MARKS, NUMBERS, PARTS, PROTOCOL
from fedsaf.methods.prototype import alignment_terms

CONF = Path(__file__).resolve().parents[2] / "conf"
FILES = sorted((path.parent.name, path.stem) for path in CONF.glob("*/*.yaml"))
NEEDS = {
    "parquet": ["dataset.path=images.parquet"],
    "imagefolder": ["dataset.path=images"],
    "timm": ["model_group.backbones=[resnet18]"],
    "dirichlet": ["partition.alpha=0.3"],
}


SCALES = (None, "smoke", "small", "full")
MADE = ("dataset", "partition", "model_group", "method", "optimizer", "fabric", "logger")


def composed(*words):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", overrides=list(words))
    OmegaConf.set_struct(config, False)
    return config


@pytest.mark.parametrize(("group", "choice"), FILES, ids=lambda value: value)
def test_every_file_composes_is_accepted_and_instantiates_at_every_scale(group, choice):
    config, seen = composed(f"{group}={choice}", *NEEDS.get(choice, [])), {}
    for scale in [config.scale] if group == "scale" else SCALES:
        config.scale = scale
        values = resolved(config)
        check(values, {})
        for part in MADE:
            if seen.get(part) != values[part]:
                made = build(values, part)
                assert type(made).__module__.startswith("fedsaf.") or callable(made), part
        seen = values


def test_a_scale_makes_experiments_smaller_one_after_the_other():
    config, rounds, clients = composed("experiment=table_1"), [], []
    for config.scale in ("smoke", "small", "full"):
        rounds.append(config.rounds)
        clients.append(config.num_clients)
    assert rounds == sorted(set(rounds))
    assert clients == sorted(set(clients))
    config.scale = None
    assert (config.rounds, config.num_clients) == (rounds[-1], clients[-1])


@pytest.mark.parametrize("levels", ["both", "prototype", "instance", "none"])
@pytest.mark.parametrize("alignment", ["gcsa", "mse", "alignfed", "fedtgp"])
def test_levels_take_weights_away_and_add_none(alignment, levels):
    config = composed(f"alignment={alignment}", f"levels={levels}", "scale=small")
    proto, inst = config.alignment.weights.proto, config.alignment.weights.inst
    acts = {"both": (proto, inst), "prototype": (proto, 0), "instance": (0, inst), "none": (0, 0)}
    assert (config.alignment.proto_weight, config.alignment.inst_weight) == acts[levels]


def test_a_weight_that_is_set_has_the_last_word_over_levels():
    assert composed("levels=none", "alignment.proto_weight=0.5").alignment.proto_weight == 0.5


def test_every_file_says_what_it_is():
    for path in CONF.rglob("*.yaml"):
        lines = [line for line in path.read_text().splitlines() if not line.startswith("# @package")]
        assert lines[0].startswith("# "), f"{path} has no first line that says what it is"


def is_read(config, key, value="another value", parts=None):
    """Whether a part of a run, or one of these keys beside it, changes or breaks with a key."""
    changed, (node, _, name) = config.copy(), key.partition(".")
    OmegaConf.update(changed, key, value, merge=False)
    places = [f"{node}.{part}" for part in parts if part != name] if parts else [p for p in PARTS if p != node]
    try:
        return any(shown(changed, place) != shown(config, place) for place in places)
    except OmegaConfBaseException:
        return True


def shown(config, place):
    value = OmegaConf.select(config, place)
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


@pytest.mark.parametrize("alignment", [choice for group, choice in FILES if group == "alignment"])
def test_every_key_of_a_loss_is_read(alignment):
    """By the terms of the objective, or by another key of the loss."""
    config, read = composed(f"alignment={alignment}"), set()

    class Reading(dict):
        def __getitem__(self, key):
            read.add(key)
            return super().__getitem__(key)

    alignment_terms(Reading(instantiate(OmegaConf.to_container(config.alignment, resolve=True), _convert_="all")))
    keys = list(config.alignment)
    assert [key for key in keys if key not in read and not is_read(config, f"alignment.{key}", parts=keys)] == []


def test_every_other_key_is_read():
    """By name, or by a part of some method, network or data set: nothing lies idle."""
    unread = {key for key, value in composed().items() if not OmegaConf.is_dict(value)}
    unread |= {f"protocol.{key}" for key in composed().protocol}
    unread -= {*NUMBERS, *MARKS, *INCIDENTAL, *(f"protocol.{key}" for key in PROTOCOL)}
    words = [f"method={choice}" for group, choice in FILES if group == "method"]
    for word in (*words, "model_group=htfe8_htc4", "model_group=htfe6_txt", "dataset=ag_news"):
        config = composed(word)
        unread -= {key for key in unread if is_read(config, key, OTHER.get(key, "another value"))}
    assert unread == set()


OTHER = {"paper": "fedsaf", "scenario": "fedproc_100", "protocol.name": "public"}
"""Values that something is made of; any other one may be as good as none."""
