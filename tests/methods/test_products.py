"""Every prototype constructor with every alignment: the product that the architecture promises."""

import dataclasses
import math

import pytest

from fedsaf.assembly import build
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
    """Alignments, constructors, the rest of the method, and a job that gets them in turn."""
    alignments = {name: composed(f"alignment={name}")["method"]["alignment"] for name in choices("alignment")}
    constructors = {
        name: composed(f"prototype={name}", *SHORT.get(name, []))["method"]["constructor"]
        for name in choices("prototype")
    }
    return alignments, constructors, composed()["method"], make_job(SMALL, CONF)


def test_the_halves_are_independent(halves):
    """So each file is composed once here, not once per pair."""
    alignments, constructors, method, _ = halves
    pair = composed("alignment=gcsa", "prototype=text_prior")["method"]
    assert pair == {**method, "alignment": alignments["gcsa"], "constructor": constructors["text_prior"]}


@pytest.mark.parametrize("alignment", choices("alignment"))
@pytest.mark.parametrize("prototype", choices("prototype"))
def test_pair(prototype, alignment, halves, tmp_path):
    alignments, constructors, config, job = halves
    parts = {"alignment": alignments[alignment], "constructor": constructors[prototype]}
    method = build({"method": {**config, **parts}}, "method")
    run_job(fresh(dataclasses.replace(job, method=method), tmp_path))
    rows = list(Recorder(tmp_path).rows())
    assert [row["round"] for row in rows] == [0, 1, 2]
    last = rows[-1]
    assert last["num_prototypes"] == 4
    assert all(math.isfinite(value) for row in rows for value in (*row["loss"].values(), *row["server"].values()))
    weighed = {name for name, term in method.objective.terms.items() if term.weight > 0 and name != "cross_entropy"}
    assert weighed == last["loss"].keys() - {"cross_entropy", "total"}
    assert all(last["active"][name] > 0 and last["loss"][name] != 0 for name in weighed)
    assert bool(weighed) is (alignment != "none")


def test_a_further_term_from_the_command_line(tmp_path):
    """What ``extra_terms`` holds enters the objective under its name, beside the alignment."""
    term = "{_target_:fedsaf.losses.objective.Weighted,term:{_target_:fedsaf.losses.terms.CrossEntropy},weight:0.5}"
    words = [*SMALL, "alignment=none", f"+method.extra_terms.twice={term}"]
    run_job(fresh(make_job(words, CONF), tmp_path))
    loss = list(Recorder(tmp_path).rows())[-1]["loss"]
    assert loss["twice"] == loss["cross_entropy"]
    assert loss["total"] == pytest.approx(1.5 * loss["twice"], rel=1e-5)
