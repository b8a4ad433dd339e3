"""Every method of conf/method on the hardest small federation: it runs, stays finite, and resumes and spreads exactly.

The list comes from the folder, so a new file is covered by being there. Each method keeps its own defaults; only the
architectures are light stand-ins.
"""

from __future__ import annotations

import contextlib
import json
import math
import shutil
from pathlib import Path

import pytest
import torch

from fedsaf.federation.checkpoint import Checkpoint
from fedsaf.federation.launch import launch
from fedsaf.federation.sampling import cohort
from tests.federation.harness import (
    CONF,
    TINY,
    compare,
    differences,
    fresh,
    lopsided,
    make_job,
    perform_all,
    run,
    run_job,
    tensors,
)
from tests.methods.tiny import method_of

METHODS = sorted(path.stem for path in (CONF / "method").glob("*.yaml"))
SEED = 2
"""Of the run: the one under which 3 rounds of 2 out of 4 clients meet every client."""
HARD = [
    "dataset.num_classes=5",
    "num_clients=4",
    "participation_ratio=0.5",
    f"seed={SEED}",
    "batch_size=16",
    "eval_every=2",
]


STAND_INS = {"fedmrl": ["method.small_dim=8"]}
"""Sizes that must be smaller than the stand-ins' feature dimension."""


def words(method: str) -> list[str]:
    """Return the overrides for a method."""
    one = "one_architecture" in method_of(f"method={method}").requires
    mixed = "[resnet4]" if one else "[simple_cnn,resnet4]"
    return [*TINY, *HARD, f"method={method}", f"model_group.architectures={mixed}", *STAND_INS.get(method, ())]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return the hard job of a method and the folder of its uninterrupted run, each made once."""
    made = {}

    def of(method):
        if method not in made:
            folder = tmp_path_factory.mktemp(method)
            job = lopsided(make_job(words(method), folder / "never written"))
            run_job(fresh(job, folder / "straight"))
            made[method] = job, folder / "straight"
        return made[method]

    return of


def test_the_federation_is_as_hard_as_it_should_be(runs):
    job, _ = runs("local")
    counts = job.data.record.train_counts
    assert counts[:, 4].sum() == 0  # a class that nobody holds
    assert counts[0].sum() == 2  # a client with two samples
    assert (counts[1] > 0).sum() == 1  # a client with one class
    assert set().union(*(cohort(SEED, t, 4, 0.5) for t in range(3))) == {0, 1, 2, 3}


@pytest.mark.parametrize("method", METHODS)
def test_runs_and_stays_finite(runs, method):
    _, folder = runs(method)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [0, 1, 2, 3]
    assert all(row["failed_clients"] == [] for row in rows)
    assert rows[-1]["num_batches"] > 0  # earlier rounds may be a warm-up without training
    for owner, state in tensors(folder).items():
        for name, tensor in state.items():
            assert torch.isfinite(tensor.double()).all(), f"{owner}: {name}"


@pytest.mark.parametrize("method", METHODS)
def test_resuming_after_every_round_equals_no_interruption(runs, method, tmp_path):
    """And a client outside a cohort keeps what it has, to the bit."""
    job, straight = runs(method)
    before = {}
    for round in (0, 1, 2, None):
        run_job(fresh(job, tmp_path / "run"), stop_after=round)
        after = tensors(tmp_path / "run")
        outside = {0, 1, 2, 3} - set(cohort(SEED, round - 1, 4, 0.5)) if round else set()
        for owner in {f"client {client}" for client in outside} & after.keys():
            assert_same(before[owner], after[owner])
        before = after
    compare(straight, tmp_path / "run")


@pytest.mark.parametrize("method", METHODS)
def test_every_piece_of_state_in_a_checkpoint_matters(runs, method, tmp_path):
    """Taken away, the resumed run says what it lacks or ends elsewhere: each server key, client memory and auxiliary.

    Weights are left out, as strict loading refuses a client without one of them; memory is what a client may silently
    do without.
    """
    job, straight = runs(method)
    run_job(fresh(job, tmp_path / "stopped"), stop_after=2)
    held = tensors(tmp_path / "stopped")
    pieces = [("server", key) for key in held["server"]]
    pieces += [(owner, kind) for owner in held if owner != "server" for kind in _kinds(held[owner])]
    silent = []
    for number, (owner, piece) in enumerate(_at_most(pieces, 6)):
        folder = Path(shutil.copytree(tmp_path / "stopped", tmp_path / str(number)))
        _take_away(folder, owner, piece)
        with contextlib.suppress(KeyError, ValueError, RuntimeError):
            run_job(fresh(job, folder))
            if not differences(straight, folder):
                silent.append((owner, piece))
    assert silent == []


@pytest.mark.parametrize("method", METHODS)
def test_two_classes_and_a_cohort_of_one(method, tmp_path):
    """Binary tasks have no structure between prototypes; what else a method has must go on, with one client a round."""
    small = ["dataset.num_classes=2", "dataset.num_samples=80", "partition.min_samples=4", "participation_ratio=0.3"]
    folder = run([*words(method), *small, "rounds=2", "diagnostics_every=0"], tmp_path / "run")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [len(row["cohort"]) for row in rows] == [0, 1, 1]
    for row in rows:
        assert all(math.isfinite(value) for value in (*row["loss"].values(), *row["server"].values()))
        if method in ("prototype", "fedsaf_gcsa", "fedsaf_rcsa"):
            assert row["active"].get("prototype_alignment", 0) == 0


def _kinds(state: dict[str, torch.Tensor]) -> list[str]:
    """Return ``memory.<name>`` and ``auxiliary.<name>.`` of a client's state."""
    memory = {name for name in state if name.startswith("memory.")}
    auxiliary = {".".join(name.split(".")[:2]) + "." for name in state if name.startswith("auxiliary.")}
    return sorted(memory | auxiliary)


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    """Fail unless two states are equal to the bit."""
    assert a.keys() == b.keys()
    for name, tensor in a.items():
        assert tensor.contiguous().numpy().tobytes() == b[name].contiguous().numpy().tobytes(), name


def _at_most(pieces: list[tuple[str, str]], limit: int) -> list[tuple[str, str]]:
    """Thin out evenly: a parameter channel has one key per tensor, all of them restored by one line."""
    step = max(1, len(pieces) / limit)
    return [pieces[int(i * step)] for i in range(min(limit, len(pieces)))]


def _take_away(folder: Path, owner: str, piece: str) -> None:
    """Rewrite the checkpoint without the tensors of one owner that begin with ``piece``."""
    checkpoint = Checkpoint(folder / "checkpoint", 1.0)
    restored = checkpoint.load({})
    values = {key: value for key, value in restored.manifest.items() if key not in ("format", "round", "server")}
    server = restored.server
    if owner == "server":
        server = {key: tensor for key, tensor in server.items() if key != piece}
    else:
        client = owner.removeprefix("client ")
        state = checkpoint.read(values["clients"][client])
        kept = {key: tensor for key, tensor in state.items() if not key.startswith(piece)}
        assert len(kept) < len(state)
        values["clients"][client] = checkpoint.write_client(int(client), 2, kept)
    checkpoint.commit(2, server, values, 0.0)


FEW = [name for name in ("prototype", "scaffold", "moon", "fedgen", "fedtgp", "fedkd") if name in METHODS]


@pytest.mark.distributed
@pytest.mark.parametrize(
    "methods",
    [pytest.param(FEW, id="a few"), pytest.param(METHODS, id="all", marks=pytest.mark.slow)],
)
def test_two_ranks_equal_one(runs, methods, tmp_path):
    """One pair of ranks works through all the jobs, as starting ranks costs more than the work."""
    jobs = []
    for method in methods:
        lopsided_job = lopsided(make_job([*words(method), "fabric.devices=2"], tmp_path / "never written"))
        jobs.append(fresh(lopsided_job, tmp_path / method))
        jobs[-1].outputs.folder.mkdir(parents=True)
    launch(jobs[0].fabric, perform_all, jobs)
    for method in methods:
        compare(runs(method)[1], tmp_path / method)
