"""One job: started, repeated, killed, told to leave, resumed; alone and on two ranks."""

import signal

import pytest

from fedsaf.federation.interrupt import EXIT_AGAIN
from tests.e2e.processes import (
    SMALL,
    end,
    family,
    folders,
    has_round,
    has_saved,
    in_the_middle_of_a_round,
    kill,
    once,
    saved_round,
    start,
)
from tests.federation.harness import compare, rounds_of, state

ROUNDS = 6
COMMAND = ["alignment=rcsa", "partition=dirichlet_0.5", "-m", *SMALL, f"rounds={ROUNDS}"]


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """Root and output of the command, run without interruption."""
    root = tmp_path_factory.mktemp("straight") / "runs"
    return root, end(start(root, COMMAND))


def test_the_main_command_ends_with_its_table(straight):
    root, output = straight
    (folder,) = folders(root)
    assert state(folder) == "finished"
    assert rounds_of(folder) == list(range(ROUNDS + 1))
    assert output.count("rcsa") >= 1
    assert "mean ± std over n seeds" in output
    assert "1 finished" in output


def test_repeated_it_is_skipped_and_nothing_changes(straight):
    root, _ = straight
    (folder,) = folders(root)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    output = end(start(root, COMMAND))
    assert "finished already" in output
    assert "1 skipped" in output
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()} == before


def test_killed_then_told_to_leave_then_resumed_it_ends_in_the_same_bits(straight, tmp_path):
    root = tmp_path / "runs"
    process = start(root, COMMAND)
    once(has_saved(root, 0, 0), process)
    in_the_middle_of_a_round(process)
    kill(process)
    (folder,) = folders(root)
    assert state(folder) == "running"
    killed_at = saved_round(folder)
    assert killed_at < ROUNDS - 2, "killed too late to be told to leave before the last round"

    process = start(root, COMMAND)
    once(has_saved(root, 0, killed_at + 1), process)
    process.send_signal(signal.SIGTERM)
    output = end(process, EXIT_AGAIN)
    assert f"resuming after round {killed_at}" in output
    assert "interrupted; the same command continues" in output
    assert state(folder) == "interrupted"

    left_at = saved_round(folder)
    output = end(start(root, COMMAND))
    assert f"resuming after round {left_at}" in output
    assert folders(root) == [folder]
    assert folder.name == folders(straight[0])[0].name
    compare(folders(straight[0])[0], folder)


@pytest.mark.distributed
def test_two_ranks_under_a_sweep_write_one_folder_per_job_and_equal_one_rank(straight, tmp_path):
    """The first job is killed: no rank outlives its parent, and the same command ends in the bits of one rank."""
    root = tmp_path / "runs"
    words = [*COMMAND, "fabric.devices=2", "seed=0,1"]
    process = start(root, words)
    once(has_round(root, 0, 1), process)
    ranks = family(process)
    assert len(ranks) >= 2
    kill(process)
    for rank in ranks:
        rank.wait(timeout=10)
    output = end(start(root, words))
    assert "resuming after round" in output
    first, second = folders(root)
    assert state(first) == state(second) == "finished"
    compare(folders(straight[0])[0], first)


def test_a_second_process_does_not_write_into_a_run(tmp_path):
    root = tmp_path / "runs"
    first = start(root, [*SMALL, "rounds=1000"])
    once(has_round(root, 0, 1), first)
    output = end(start(root, [*SMALL, "rounds=1000"]), 1)
    assert "is being written by another process" in output
    first.send_signal(signal.SIGINT)
    end(first, EXIT_AGAIN)


def test_wandb_without_key_terminal_or_answer_is_an_offline_file(tmp_path):
    root = tmp_path / "runs"
    words = [*SMALL, "rounds=1", "local_epochs=1", "logger=wandb"]
    output = end(start(root, words))
    assert "wandb sync" in output
    (folder,) = folders(root)
    assert list(folder.glob("wandb/offline-run-*/*.wandb"))


def test_no_logger_imports_no_wandb(straight, tmp_path):
    """A module of that name on the path that would end the program."""
    (tmp_path / "wandb.py").write_text("raise SystemExit('wandb was imported')")
    end(start(tmp_path / "runs", [*SMALL, "rounds=1", "local_epochs=1"], PYTHONPATH=str(tmp_path)))
