"""Which launcher starts what, and what is said before anything starts."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedsaf.core.config import ConfigError
from fedsaf.reproduction import launch
from fedsaf.reproduction.cell import Cell
from fedsaf.reproduction.launch import attended, fill, launcher_words, sweeps, thread_words
from fedsaf.reproduction.plan import Plan
from tests.reproduction.planned import made_cell

REBUILD = Path(__file__).resolve().parents[2] / "src" / "rebuild.py"


def runs(**values):
    """Runs of one experiment over the product of two axes."""
    return [
        made_cell("table_3", (f"method={method}", f"seed={seed}"), ("experiment=table_3", "scale=smoke"), {}, {})
        for method in values["method"]
        for seed in values["seed"]
    ]


def installed(monkeypatch, sbatch="/usr/bin/sbatch"):
    monkeypatch.setattr(launch, "_is_installed", lambda module: True)
    monkeypatch.setattr(launch.shutil, "which", lambda name: sbatch)


def test_jobs_on_one_machine_share_its_cores(monkeypatch):
    installed(monkeypatch)
    monkeypatch.setattr(launch.os, "cpu_count", lambda: 8)
    assert launcher_words("joblib", 2)[1:] == ["hydra.launcher.n_jobs=2", "fabric.threads=4"]
    assert launcher_words("joblib", 16)[-1] == "fabric.threads=1"
    assert launcher_words("submitit_local", 4)[-1] == "fabric.threads=2"
    assert launcher_words("submitit_slurm", 4)[-1] == "hydra.launcher.array_parallelism=4"
    assert launcher_words("basic", 4) == []
    assert thread_words("joblib", 2) == ["fabric.threads=4"]
    assert thread_words("submitit_slurm", 4) == thread_words("basic", 4) == []


@pytest.mark.parametrize(
    ("launcher", "jobs", "message"),
    [
        ("joblip", 2, "LAUNCHER=joblip is unknown; did you mean joblib"),
        ("joblib", 0, "--jobs 0; expected at least 1"),
        ("submitit_slurm", 2, "needs Slurm, but there is no sbatch here"),
    ],
)
def test_what_cannot_start_is_refused(monkeypatch, launcher, jobs, message):
    installed(monkeypatch, sbatch=None)
    with pytest.raises(ConfigError, match=message):
        launcher_words(launcher, jobs)


def test_a_missing_package_names_its_extra(monkeypatch):
    monkeypatch.setattr(launch, "find_spec", lambda module: None)
    for launcher in ("joblib", "submitit_local", "submitit_slurm"):
        with pytest.raises(ConfigError, match=rf"LAUNCHER={launcher} needs the extra sweep; pip install"):
            launcher_words(launcher, 2)

    def without_plugins(module):
        raise ModuleNotFoundError(module)

    monkeypatch.setattr(launch, "find_spec", without_plugins)
    with pytest.raises(ConfigError, match="needs the extra sweep"):
        launcher_words("joblib", 2)


def test_the_entry_refuses_before_it_plans_or_writes(tmp_path):
    pytest.importorskip("submitit", reason="needs the extra sweep")
    words = ["table-9", "--scale", "smoke", "--launcher", "submitit_slurm", f"results_root={tmp_path / 'runs'}"]
    result = subprocess.run(
        [sys.executable, str(REBUILD), *words], capture_output=True, text=True, env={"PATH": str(tmp_path)}, timeout=120
    )
    assert result.returncode == 1
    assert result.stderr.startswith("error: LAUNCHER=submitit_slurm needs Slurm")
    assert (result.stdout, list(tmp_path.iterdir())) == ("", [])


def test_sweeps_are_split_until_none_is_too_large():
    planned = runs(method="abc", seed="0123")
    assert sweeps(planned) == [["experiment=table_3", "scale=smoke", "method=a,b,c", "seed=0,1,2,3"]]
    parts = sweeps(planned, most=2)
    started = [
        (method, seed)
        for part in parts
        for method in part[2].removeprefix("method=").split(",")
        for seed in part[3].removeprefix("seed=").split(",")
    ]
    assert sorted(started) == sorted((method, seed) for method in "abc" for seed in "0123")
    assert all(part[2].count(",") + part[3].count(",") <= 1 for part in parts)


@pytest.mark.parametrize(("launcher", "sizes"), [("submitit_local", [2, 2]), ("joblib", [4]), ("basic", [4])])
def test_a_launcher_that_starts_all_at_once_is_given_no_more_than_go_side_by_side(monkeypatch, launcher, sizes):
    started, planned = [], runs(method="a", seed="0123")
    monkeypatch.setattr(Cell, "is_finished", False)
    monkeypatch.setattr(launch, "start", lambda words, *rest: started.append(words) or len(started) - 1)
    assert fill(Plan("table-3", "smoke", planned), launcher, Path("train.py"), 2) == len(sizes) - 1
    assert [words[-1].count(",") + 1 for words in started] == sizes
    monkeypatch.setattr(Cell, "is_finished", True)
    assert fill(Plan("table-3", "smoke", planned), launcher, Path("train.py"), 2) == 0


SLOW_TO_SAVE = """
import pathlib, signal, sys, time
def save(number, frame):
    time.sleep(1.5)
    pathlib.Path(sys.argv[1]).write_text(signal.Signals(number).name)
    sys.exit(75)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, save)
print("ready", flush=True)
time.sleep(60)
"""
PARENT = """
import sys
from fedsaf.federation.interrupt import leave_on_request
from fedsaf.reproduction.launch import attended
from tests.reproduction.planned import made_cell
leave_on_request()
sys.exit(attended([sys.executable, "-c", sys.argv[1], sys.argv[2]]))
"""


@pytest.fixture
def attending(tmp_path):
    """A process that attends one which saves slowly and is ready, and the file into which that one saves."""
    saved = tmp_path / "saved"
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, SLOW_TO_SAVE, str(saved)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(REBUILD.parent)},
        start_new_session=True,
    )
    assert parent.stdout.readline() == "ready\n"
    return parent, saved


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_sweep_that_is_asked_to_stop_may_save_first(attending, number):
    parent, saved = attending
    parent.send_signal(number)
    assert parent.wait(timeout=30) == 75
    assert saved.read_text() == ("SIGTERM" if number == signal.SIGINT else signal.Signals(number).name)


def test_a_terminal_tells_both_and_the_run_saves_once(attending):
    parent, saved = attending
    os.killpg(parent.pid, signal.SIGINT)
    assert parent.wait(timeout=30) == 75
    assert saved.exists()


def test_a_process_that_was_killed_has_failed():
    assert attended([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]) == 137
    assert attended([sys.executable, "-c", ""]) == 0


def test_one_that_was_asked_before_it_could_listen_is_to_be_started_again():
    ask = f"import os, time; os.kill({os.getpid()}, 10); time.sleep(30)"
    assert attended([sys.executable, "-c", ask]) == 75


def test_no_sweep_is_started_after_one_that_was_asked_to_stop(monkeypatch):
    answers = iter([1, 75, 0])
    monkeypatch.setattr(launch, "start", lambda *words: next(answers))
    planned = [
        made_cell("table_3", (f"dataset={name}",), ("scale=smoke",), {"results_root": "nowhere"}, {}) for name in "abc"
    ]
    monkeypatch.setattr(Cell, "is_finished", False)
    assert fill(Plan("table-3", "smoke", planned), "basic", Path("train.py"), 1) == 75
    assert list(answers) == [0]
