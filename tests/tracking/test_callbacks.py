import os
import subprocess
import sys
from pathlib import Path

import pytest

import fedsaf

PROGRAM = """
import os
import time
import hydra
from omegaconf import OmegaConf
from pathlib import Path
from fedsaf.tracking.recorder import Recorder
from fedsaf.core.types import RoundRecord

@hydra.main(version_base="1.3", config_path="conf", config_name="main")
def main(config):
    folder = Path("runs") / f"{config.rounds}-{config.seed}"
    if (folder / "summary.json").exists():
        return {"folder": folder, "outcome": "skipped"}
    if config.rounds == 9:
        while not Path("begun").exists():
            time.sleep(0.1)
        os.kill(os.getpid(), 9)
    if config.rounds == 3:
        Path("begun").touch()
        time.sleep(3)
    if config.rounds == 13:
        raise ValueError("rounds: got 13, expected luck")
    seed = len(list(Path("runs").glob("*-None-*"))) if config.seed is None else config.seed
    if config.seed is None:
        folder = folder.with_name(f"{folder.name}-{seed}")
    recorder = Recorder(folder)
    accuracy = {"pooled": config.rounds / 10 + seed / 100, "client_mean": 0.0}
    recorder.append(RoundRecord(1, {"classifier": accuracy}))
    OmegaConf.save({"seed": seed}, folder / "config.yaml")
    recorder.summarise(folder.name, "p", {})
    recorder.status("finished")
    return {"folder": folder, "outcome": "finished"}

main()
"""
CONFIG = """
defaults: [_self_, {alignment: rcsa}]
seed: 0
rounds: 1
stop_on_failure: false
hydra:
  run: {dir: out}
  sweep: {dir: sweep, subdir: "${hydra.job.num}"}
  callbacks:
    closing:
      _target_: fedsaf.tracking.callbacks.ClosingTable
      predictors: [classifier, nearest_prototype]
      measure: pooled
"""


@pytest.fixture
def sweep(tmp_path):
    (tmp_path / "main.py").write_text(PROGRAM)
    (tmp_path / "conf" / "alignment").mkdir(parents=True)
    (tmp_path / "conf" / "main.yaml").write_text(CONFIG)
    (tmp_path / "conf" / "alignment" / "rcsa.yaml").write_text("a: 1")
    environment = {**os.environ, "PYTHONPATH": str(Path(fedsaf.__file__).parents[1]), "COLUMNS": "120"}

    def run(*arguments):
        command = [sys.executable, "main.py", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, timeout=60)

    return run


def rows(text):
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if "│" in line]
    return [line for line in lines if line[0] != ""]


def test_sweep_ends_with_one_table(sweep):
    result = sweep("-m", "rounds=1,2", "seed=0,2")
    assert result.returncode == 0, result.stderr
    assert rows(result.stdout) == [
        ["rcsa", "1", "11.00 ± 1.00", "11.00 ± 1.00", "2", "2 finished"],
        ["rcsa", "2", "21.00 ± 1.00", "21.00 ± 1.00", "2", "2 finished"],
    ]


def test_failed_jobs_are_listed_and_logged_and_finished_ones_skipped_next_time(sweep, tmp_path):
    first = sweep("-m", "rounds=13,1", "seed=0,1")
    assert first.returncode == 1
    assert rows(first.stdout) == [
        ["rcsa", "13", "-", "-", "0", "2 failed"],
        ["rcsa", "1", "10.50 ± 0.50", "10.50 ± 0.50", "2", "2 finished"],
    ]
    assert first.stdout.count("ValueError: rounds: got 13, expected luck") >= 2
    assert "failed: rounds=13 seed=1: ValueError: rounds: got 13, expected luck" in first.stdout
    for job in (0, 1):
        assert "rounds: got 13" in (tmp_path / "sweep" / str(job) / "main.log").read_text()
    again = sweep("-m", "rounds=1", "seed=0,1,2")
    assert again.returncode == 0
    # 10, 11 and 12 percent; nothing is left of the failed jobs of the sweep before.
    assert rows(again.stdout) == [["rcsa", "11.00 ± 0.82", "11.00 ± 0.82", "3", "2 skipped, 1 finished"]]


def test_drawn_seeds_are_seeds(sweep):
    result = sweep("-m", "rounds=1", "seed=null,null")
    assert result.returncode == 0, result.stderr
    assert rows(result.stdout) == [["rcsa", "10.50 ± 0.50", "10.50 ± 0.50", "2", "2 finished"]]


@pytest.mark.parametrize("launcher", ["joblib", pytest.param("submitit_local", marks=pytest.mark.slow)])
def test_side_by_side_every_job_is_in_the_table_also_one_that_was_killed(sweep, tmp_path, launcher):
    pytest.importorskip(f"hydra_plugins.hydra_{launcher.partition('_')[0]}_launcher", reason="needs the extra sweep")
    start = ["-m", f"hydra/launcher={launcher}", *(["hydra.launcher.n_jobs=2"] if launcher == "joblib" else [])]
    good = sweep(*start, "rounds=1,13", "seed=0")
    assert good.returncode == 1
    assert [row[1:] for row in rows(good.stdout)] == [
        ["1", "10.00", "10.00", "1", "1 finished"],
        ["13", "-", "-", "0", "1 failed"],
    ]
    # Launchers give up when a process dies: joblib ends the others, submitit leaves them at work.
    killed = sweep(*start, "rounds=9,3", "seed=0")
    assert killed.returncode == 1
    assert "unfinished: rounds=9 seed=0: killed, or asked to stop" in killed.stdout
    outcomes = {row[1]: row[-1] for row in rows(killed.stdout)}
    assert outcomes == {"9": "1 unfinished", "3": "1 unfinished" if launcher == "joblib" else "1 finished"}
    again = sweep(*start, "rounds=1,3", "seed=0")
    assert again.returncode == 0, again.stderr
    assert {row[1]: row[-1] for row in rows(again.stdout)} == {
        "1": "1 skipped",
        "3": "1 finished" if launcher == "joblib" else "1 skipped",
    }


def test_nothing_is_left_in_the_sweep_folder(sweep, tmp_path):
    sweep("-m", "rounds=13", "seed=0,1")
    assert sorted(path.name for path in (tmp_path / "sweep").iterdir()) == ["0", "1", "multirun.yaml"]


def test_a_single_run_prints_no_closing_table(sweep):
    result = sweep("rounds=1")
    assert result.returncode == 0, result.stderr
    assert rows(result.stdout) == []
