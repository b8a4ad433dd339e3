from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from fedsaf.data.datasets import Source
from fedsaf.data.partition.partitioner import Partitioner

CONF = Path(__file__).parents[2] / "conf"


def load(group, name):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("train", overrides=[f"{group}={name}"])[group]


@pytest.mark.parametrize("name", sorted(f.stem for f in (CONF / "dataset").glob("*.yaml")))
def test_every_dataset_instantiates(name):
    assert isinstance(instantiate(load("dataset", name)), Source)


@pytest.mark.parametrize("name", sorted(f.stem for f in (CONF / "partition").glob("*.yaml")))
def test_every_partition_instantiates(name):
    rule = instantiate(load("partition", name))
    assert isinstance(rule, Partitioner)
    rule.rng()
    if name.startswith("dirichlet_") and name != "dirichlet_public":
        assert rule.alpha == float(name.removeprefix("dirichlet_"))


@pytest.mark.parametrize("name", ["digits", "synthetic"])
def test_embedded_data_load_from_their_configuration(name):
    dataset = instantiate(load("dataset", name), max_samples=50).load(1)
    assert dataset.labels.bincount().tolist() == [5] * 10
