"""Several jobs: failures are listed, kills lose one round at most, finished jobs never run again."""

import os
import signal

import pytest

from fedsaf.core.files import read_json
from tests.e2e.processes import SMALL, end, folders, has_round, in_the_middle_of_a_round, kill, once, read, start
from tests.federation.harness import compare, state

SEEDS = ["-m", *SMALL, "seed=0,1,2"]


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    root = tmp_path_factory.mktemp("straight") / "runs"
    return root, end(start(root, SEEDS))


def test_one_line_per_cell_with_mean_deviation_and_n(straight):
    _, output = straight
    lines = [line for line in output.splitlines() if "3 finished" in line]
    assert len(lines) == 2  # one table per prediction rule
    for line in lines:
        assert line.count("±") == 2
        assert " 3 " in line


def test_killed_in_the_second_job_the_same_command_runs_only_what_is_missing(straight, tmp_path):
    root = tmp_path / "runs"
    process = start(root, SEEDS)
    once(has_round(root, 1, 1), process)
    in_the_middle_of_a_round(process)
    kill(process)
    first = folders(root)[0]
    kept = {path: path.stat().st_mtime_ns for path in first.rglob("*") if path.is_file()}
    assert len(folders(root)) == 2
    output = end(start(root, SEEDS))
    for outcome in ("1 skipped", "1 resumed", "1 finished"):
        assert outcome in output
    assert {path: path.stat().st_mtime_ns for path in first.rglob("*") if path.is_file()} == kept
    for ours, uninterrupted in zip(folders(root), folders(straight[0]), strict=True):
        compare(uninterrupted, ours)


def test_a_failed_job_is_listed_and_the_others_run(tmp_path):
    """The loss of one cell is not finite; its status says so, and the exit code is not 0."""
    root = tmp_path / "runs"
    words = ["-m", *SMALL, "alignment=none", "rounds=1", "optimizer.lr=1e12,0.01"]
    output = end(start(root, words), 1)
    assert "1 finished" in output
    assert "1 failed" in output
    (line,) = [line for line in output.splitlines() if line.startswith("failed: ")]
    assert "optimizer.lr=1e12" in line or "optimizer.lr=1000000000000.0" in line
    states = {read(folder / "config.yaml").count("lr: 0.01"): folder for folder in folders(root)}
    assert {state(folder) for folder in states.values()} == {"finished", "failed"}
    failed = next(folder for folder in states.values() if state(folder) == "failed")
    assert "the loss term" in read_json(failed / "status.json")["reason"]
    assert "client " in read_json(failed / "status.json")["reason"]


def test_stop_on_failure_ends_the_sweep_there(tmp_path):
    root = tmp_path / "runs"
    words = ["-m", *SMALL, "method=fedavg,local", "rounds=1", "stop_on_failure=true"]
    words.remove("model_group.architectures=[simple_cnn,resnet4]")
    words.append("model_group=htfe2")
    output = end(start(root, words), 1)
    assert "failed: " in output
    assert "take model_group=homogeneous" in output
    assert folders(root) == []


@pytest.mark.slow
def test_a_requeued_job_goes_on_in_its_folder(tmp_path):
    """Slurm, or its local stand-in, warns by a signal that the time is over, and starts the job anew."""
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="needs the extra sweep")
    root = tmp_path / "runs"
    process = start(root, ["-m", *SMALL, "hydra/launcher=submitit_local"])
    once(has_round(root, 0, 1), process)
    os.kill(read_json(folders(root)[0] / "status.json")["pid"], signal.SIGUSR2)
    assert "1 resumed" in end(process)
    assert len(folders(root)) == 1
    assert state(folders(root)[0]) == "finished"
