"""Every prototype constructor with every alignment: the product that the architecture promises."""

import dataclasses
import math

import pytest
from hydra.utils import instantiate

from fedsaf.tracking.recorder import Recorder
from tests.federation.harness import CONF, TINY, fresh, make_job, origin, run_job

SMALL = (*TINY, "method=prototype", "num_clients=2", "rounds=2", "dataset.num_samples=64", "dataset.image_size=16")
SMALL += ("model_group.architectures=[simple_cnn]", "batch_size=16", "checkpoint_overhead=1e-9", "diagnostics_every=0")
SHORT = {
    "trainable": ["prototype.epochs=2"],
    "semantic_anchor": ["prototype.epochs=2"],
    "generator_prior": ["prototype.training.epochs=2"],
}
"""Fewer server epochs, where a constructor has any."""


def choices(group):
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def composed(*words):
    return origin([*SMALL, *words], None).config


@pytest.fixture(scope="module")
def halves():
    """Objectives by alignment, channels by constructor, and a job that gets them in turn."""
    objectives = {name: composed(f"alignment={name}")["method"]["objective"] for name in choices("alignment")}
    channels = {
        name: composed(f"prototype={name}", *SHORT.get(name, []))["method"]["channels"] for name in choices("prototype")
    }
    return objectives, channels, make_job(SMALL, CONF)


def test_the_halves_are_independent(halves):
    """So each file is composed once here, not once per pair."""
    objectives, channels, _ = halves
    pair = composed("alignment=gcsa", "prototype=text_prior")["method"]
    assert (pair["objective"], pair["channels"]) == (objectives["gcsa"], channels["text_prior"])


@pytest.mark.parametrize("alignment", choices("alignment"))
@pytest.mark.parametrize("prototype", choices("prototype"))
def test_pair(prototype, alignment, halves, tmp_path):
    objectives, channels, job = halves
    parts = {"objective": objectives[alignment], "channels": channels[prototype]}
    method = dataclasses.replace(job.method, **instantiate(parts, _convert_="all"))
    run_job(fresh(dataclasses.replace(job, method=method), tmp_path))
    rows = list(Recorder(tmp_path).rows())
    assert [row["round"] for row in rows] == [0, 1, 2]
    last = rows[-1]
    assert last["num_prototypes"] == 4
    assert all(math.isfinite(value) for row in rows for value in (*row["loss"].values(), *row["server"].values()))
    weighed = {
        name for name, term in objectives[alignment]["terms"].items() if term["weight"] > 0 and name != "cross_entropy"
    }
    assert weighed == last["loss"].keys() - {"cross_entropy", "total"}
    assert all(last["active"][name] > 0 and last["loss"][name] > 0 for name in weighed)
    assert bool(weighed) is (alignment != "none")
