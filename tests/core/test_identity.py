"""The hash of a run covers what determines its result, nothing else; what is read is seen by watching the assembly."""

import copy
import json
import random
from collections.abc import Mapping
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from fedsaf.assembly import Origin, assemble
from fedsaf.core.identity import INCIDENTAL, MARKS, NEUTRAL, config_hash, identity, run_folder, run_name
from tests.federation.harness import TINY

CONF = Path(__file__).resolve().parents[2] / "conf"
TEXTS = (
    "dataset=synthetic_text",
    "model_group=htfe6_txt",
    "dataset.num_samples=160",
    "partition.min_samples=8",
    "num_clients=4",
    "batch_size=8",
    "feature_dim=16",
    "model_group.embedding_dim=16",
    "fabric.accelerator=cpu",
    "fabric.threads=1",
    "logger=none",
)
RUNS = {
    "fedavg": (*TINY, "method=fedavg"),
    "fedtgp": (*TINY, "method=fedtgp"),
    "fedkd": (*TINY, "method=fedkd"),
    "gcsa": (*TINY, "alignment=gcsa", "validation=held_out"),
    "texts": TEXTS,
}


def composed(*words):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", overrides=list(words), return_hydra_config=True)
    choices = {k: v for k, v in config.hydra.runtime.choices.items() if isinstance(v, str) and "/" not in k}
    plain = OmegaConf.masked_copy(config, [key for key in config if key != "hydra"])
    return OmegaConf.to_container(plain, resolve=True), choices


def leaves(value, path=()):
    """Yield the path and value of everything that is not a container, and of empty containers."""
    entries = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    if not entries:
        yield path, value
    for key, item in entries:
        yield from leaves(item, (*path, key))


class Watched(Mapping):
    """A configuration that notes what is taken from it; nodes without a target are watched in turn."""

    def __init__(self, content, seen, path=()):
        self.content, self.seen, self.path = content, seen, path

    def __getitem__(self, key):
        value, path = self.content[key], (*self.path, key)
        if isinstance(value, dict) and "_target_" not in value:
            return Watched(value, self.seen, path)
        self.seen |= {found for found, _ in leaves(value, path)}
        return value

    def __contains__(self, key):
        return key in self.content

    def __iter__(self):
        return iter(self.content)

    def __len__(self):
        return len(self.content)


@pytest.fixture(scope="module", params=RUNS)
def watched(request, tmp_path_factory):
    """A configuration, and the paths of the leaves that a run with it reads."""
    config, choices = composed(*RUNS[request.param])
    seen = set()
    folder = tmp_path_factory.mktemp("run") / "never written"
    assemble(Origin(Watched(config, seen), choices, [], config_hash(config), folder))
    return config, seen


def changed(config, path, value):
    """Return a copy with another value at a path."""
    config = copy.deepcopy(config)
    node = config
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return config


def another(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    return f"{value}x" if isinstance(value, str) else ["x"]


def is_outside(path):
    dotted = ".".join(map(str, path))
    aside = any(dotted == key or dotted.startswith(f"{key}.") for key in INCIDENTAL)
    return aside or path[-1] == "_convert_"


def test_every_leaf_that_is_read_counts(watched):
    config, seen = watched
    base, counted = config_hash(config), 0
    for path, value in list(leaves(config)):
        if path in seen and not is_outside(path):
            counted += 1
            assert config_hash(changed(config, path, another(value))) != base, path
    assert counted > 50


def test_no_leaf_that_is_not_read_counts(watched):
    """Unread groups, switches of other methods, labels: whatever no part is built of and nobody takes by name."""
    config, seen = watched
    base, free = config_hash(config), 0
    for path, value in list(leaves(config)):
        if path not in seen and path[0] not in MARKS:
            free += 1
            assert config_hash(changed(config, path, another(value))) == base, path
    assert free > 20
    for label in ("paper", "scenario", "regime", "setting", "table", "choices"):
        assert config_hash({**config, label: "fedsaf"}) == base, label


def test_how_a_run_is_carried_out_does_not_count(watched):
    config, _ = watched
    base, met = config_hash(config), 0
    for path, value in list(leaves(config)):
        if is_outside(path):
            met += 1
            assert config_hash(changed(config, path, another(value))) == base, path
    assert met > 12


def test_tables_tell_runs_apart_by_their_marks():
    base = {"seed": 0, "scale": None, "stand_in_for": None}
    assert config_hash(base) == config_hash({"seed": 0})
    assert len({config_hash(base | mark) for mark in ({}, {"scale": "small"}, {"stand_in_for": "cifar10"})}) == 3


def test_the_switch_of_another_method_does_not_count():
    base = config_hash(composed(*RUNS["fedavg"])[0])
    assert config_hash(composed(*RUNS["fedavg"], "protocol.prototype_weighting=uniform")[0]) == base
    assert config_hash(composed(*RUNS["fedavg"], "protocol.bn_buffers=ignore")[0]) != base


def moved(config):
    """Return the configuration as it is after every module was renamed."""
    if isinstance(config, list):
        return [moved(item) for item in config]
    if not isinstance(config, dict):
        return config
    return {
        key: f"elsewhere.{value.rpartition('.')[2]}" if key == "_target_" else moved(value)
        for key, value in config.items()
    }


def shuffled(config, rng):
    """Return the configuration with its keys in another order, and its whole numbers written as fractions."""
    if isinstance(config, list):
        return [shuffled(item, rng) for item in config]
    if isinstance(config, dict):
        keys = list(config)
        rng.shuffle(keys)
        return {key: shuffled(config[key], rng) for key in keys}
    return float(config) if type(config) is int else config


def extended(config, rng):
    """Return the configuration of a later version, whose nodes have more keys, all of them at "as before"."""
    if isinstance(config, list):
        return [extended(item, rng) for item in config]
    if not isinstance(config, dict):
        return config
    added = {f"new_{i}": value for i, value in enumerate((None, False, [], {}, {"deeper": None}))}
    return {key: extended(value, rng) for key, value in config.items()} | added


@pytest.mark.parametrize("change", [lambda config, rng: moved(config), shuffled, extended])
def test_what_changes_no_result_does_not_count(watched, change):
    config, _ = watched
    other = change(config, random.Random(0))
    assert json.dumps(other) != json.dumps(config)
    assert config_hash(other) == config_hash(config)


def test_an_added_key_counts_at_any_other_value(watched):
    config, _ = watched
    for value in (0, 1, "", "none", True, [None], {"deeper": 0}):
        assert config_hash(changed(config, ("method", "new"), value)) != config_hash(config), value


def test_a_preset_and_its_value_typed_out_are_the_same_run():
    preset, typed = composed("partition=dirichlet_0.1")[0], composed("partition=dirichlet", "partition.alpha=1e-1")[0]
    assert config_hash(preset) == config_hash(typed)


def test_numbers_are_told_from_truth_values_and_texts():
    values = (1, True, "1", [1], {"a": 1}, 0, "", 1.5, "1.5", float("inf"))
    assert len({config_hash({"optimizer": {"x": value}}) for value in values}) == len(values)
    assert config_hash({"optimizer": {"x": 0.01}}) == config_hash({"optimizer": {"x": 1e-2}})


def test_the_order_of_a_list_counts():
    assert config_hash({"dataset": {"splits": ["a", "b"]}}) != config_hash({"dataset": {"splits": ["b", "a"]}})


def test_an_own_neutral_value_is_the_only_one_left_out(monkeypatch):
    """As the docstring of the table promises: by class, below a plain node of it, and on top level."""
    monkeypatch.setitem(NEUTRAL, "SGD.momentum", 0.9)
    monkeypatch.setitem(NEUTRAL, "SGD.clip.rule", None)
    monkeypatch.setitem(NEUTRAL, "eval_every", 1)
    sgd = {"_target_": "torch.optim.SGD", "lr": 0.1}
    base = config_hash({"optimizer": sgd})
    assert config_hash({"optimizer": sgd | {"momentum": 0.90}, "eval_every": 1.0}) == base
    assert config_hash({"optimizer": sgd | {"clip": {"rule": None}}}) == base
    for other in ({"momentum": None}, {"momentum": False}, {"momentum": 0}, {"clip": {"rule": False}}):
        assert config_hash({"optimizer": sgd | other}) != base, other
    assert config_hash({"optimizer": sgd | {"term": {"momentum": 0.9}}}) != base
    assert config_hash({"optimizer": sgd | {"_target_": "mine.Adam", "momentum": 0.9}}) != config_hash(
        {"optimizer": sgd | {"_target_": "mine.Adam"}}
    )


def kinds_of(node, place=""):
    """Yield the place of every null, false, [] or {} of a file of ``conf/``, and which of them it is."""
    for key, value in node.items():
        if isinstance(value, dict) and value:
            yield from kinds_of(value, f"{place}.{key}")
        elif value is None or value is False or value in ([], {}):
            yield f"{place}.{key}", json.dumps(value)


def test_no_key_means_two_things_by_two_kinds_of_nothing():
    """What `NEUTRAL` rests on: a key has one type, so that null, false, [] and {} are one value to its reader."""
    found = {}
    for path in CONF.glob("*/*.yaml"):
        content = OmegaConf.to_container(OmegaConf.load(path))
        top = "" if path.read_text().startswith("# @package _global_") else f".{path.parent.name}"
        for place, kind in kinds_of(content, top):
            found.setdefault(place, set()).add(kind)
    assert len(found) > 20
    told_apart = {key.rpartition(".")[2] for key in NEUTRAL}
    assert [p for p, kinds in found.items() if len(kinds) > 1 and p.rpartition(".")[2] not in told_apart] == []


def test_the_name_of_a_run_tells_its_choices_and_only_those_it_reads():
    words = ("partition=iid", "seed=3")
    config, choices = composed(*words, "method=local")
    assert run_name(config, choices) == f"digits_iid_small_local_seed3_{config_hash(config)}"
    config, choices = composed(*words)
    assert run_name(config, choices).startswith("digits_iid_small_prototype_rcsa_mean_seed3_")
    config, choices = composed(*words, "method=fedtsp")
    assert run_name(config, choices).startswith("digits_iid_small_fedtsp_lexical_seed3_")


def test_a_run_is_found_under_the_name_it_was_given_when_it_was_made(tmp_path):
    config, choices = composed("partition=dirichlet_0.1", f"results_root={tmp_path}")
    mine = run_folder(config, choices)
    assert mine == tmp_path / run_name(config, choices)
    (tmp_path / f".other_{config_hash(config)}").mkdir()
    assert run_folder(config, choices) == mine
    former = tmp_path / f"digits_called_otherwise_seed0_{config_hash(config)}"
    former.mkdir()
    assert run_folder(config, choices) == former
    assert run_folder({**config, "force": True}, choices) == mine
    mine.mkdir()
    assert run_folder(config, choices) == mine
    assert run_folder({**config, "seed": 1}, choices).exists() is False


def test_nothing_in_the_configuration_is_changed_by_asking():
    config, _ = composed()
    before = copy.deepcopy(config)
    identity(config)
    assert config == before
