"""Whatever moment a run dies at, the same command ends in the same bits as without."""

import contextlib
import shutil
from pathlib import Path

import pytest
import torch

from fedsaf.federation.checkpoint import Checkpoint
from tests.federation.harness import (
    TINY,
    DiesAtWrite,
    Killed,
    compare,
    differences,
    fresh,
    make_job,
    rounds_of,
    run,
    run_job,
    state,
    tensors,
)


@pytest.mark.parametrize("round", [0, 1, 2])
def test_stopping_after_any_round(straight, again, round):
    folder = again(stop_after=round)
    assert state(folder) == "interrupted"
    assert rounds_of(folder) == list(range(round + 1))
    compare(straight, again())


def test_stopping_again_and_again_in_the_middle_of_a_round(straight, again):
    for round in (1, 2, 3):
        folder = again(stop_within=round)
        assert state(folder) == "interrupted"
        assert rounds_of(folder) == list(range(round))
        if round < 3:
            again(stop_after=round)
    compare(straight, again())


@pytest.mark.parametrize("step", [1, 2, 7, 12])
def test_dying_in_the_middle_of_a_local_epoch(straight, again, step):
    assert state(again(dies_at_step=step)) == "running"
    compare(straight, again())


@pytest.mark.parametrize("overhead", ["1e-9", "0.05"])
def test_a_resume_far_behind_writes_the_lost_rounds_again(straight, words, tmp_path, overhead):
    """With rare checkpoints several recorded rounds lie behind the last one; they are cut and come back the same."""
    words = [*words, f"checkpoint_overhead={overhead}"]
    folder = run(words, tmp_path / "run", dies_at_step=20)
    assert len(rounds_of(folder)) > 1
    compare(straight, run(words, folder))


def test_dying_at_every_single_write(tmp_path, monkeypatch):
    """Each file operation of recorder and checkpoint in turn, the tensor files left cut short."""
    words = [*TINY, "model_group.architectures=[simple_cnn]", "num_clients=2", "rounds=1", "dataset.num_samples=60"]
    job = make_job(words, tmp_path / "never written")
    straight = fresh(job, tmp_path / "straight")
    with monkeypatch.context() as patch:
        counter = DiesAtWrite(patch, at=0)
        run_job(straight)
    assert counter.count > 20
    for at in range(1, counter.count + 1):
        folder = tmp_path / f"at {at}"
        dying = fresh(job, folder)
        with monkeypatch.context() as patch, contextlib.suppress(Killed):
            DiesAtWrite(patch, at)
            run_job(dying)
        run_job(fresh(job, folder))
        assert differences(tmp_path / "straight", folder) == [], f"died at write {at} of {counter.count}"
        assert not list((folder / "checkpoint").glob("*.partial"))


def test_when_checkpoints_are_written_changes_nothing(straight, words, tmp_path):
    folder = run([*words, "checkpoint_overhead=1e-9"], tmp_path / "run")
    compare(straight, folder)


def test_the_comparison_sees_one_bit(straight, again):
    """A guard that cannot fail guards nothing."""
    folder = again()
    assert differences(straight, folder) == []
    checkpoint = Checkpoint(folder / "checkpoint", 1.0)
    server = tensors(folder)["server"]
    server["prototypes.values"].view(torch.int32)[0, 0] ^= 1
    checkpoint.commit(3, server, {"clients": checkpoint.load({}).manifest["clients"]}, 0.0)
    assert differences(straight, folder) == ["server: prototypes.values"]
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    (folder / "metrics.jsonl").write_text("\n".join(lines[:-1]) + "\n")
    assert "metrics.jsonl" in differences(straight, folder)


def test_every_part_of_a_checkpoint_matters(straight, job, again, tmp_path):
    """Without one owner's tensors a resumed run ends elsewhere, or says what it lacks; it never shrugs."""
    stopped = again(stop_after=2)
    held = tensors(stopped)
    assert len(held) > 2
    for lost in held:
        folder = Path(shutil.copytree(stopped, tmp_path / lost))
        restored = Checkpoint(folder / "checkpoint", 1.0).load({})
        manifest = {key: value for key, value in restored.manifest.items() if key not in ("format", "round", "server")}
        manifest["clients"].pop(lost.removeprefix("client "), None)
        server = {} if lost == "server" else restored.server
        Checkpoint(folder / "checkpoint", 1.0).commit(2, server, manifest, 0.0)
        with contextlib.suppress(KeyError, ValueError):
            run_job(fresh(job, folder))
            assert differences(straight, folder), lost


def test_a_run_killed_after_its_last_round_only_writes_what_is_missing(straight, again):
    (again() / "prototypes.safetensors").unlink()
    compare(straight, again(dies_at_step=1))  # not a single step is made
