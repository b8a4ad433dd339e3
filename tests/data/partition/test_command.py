"""The entry that shares out without training, as a user starts it."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from fedsaf.cli import cells
from fedsaf.core.config import ConfigError
from fedsaf.data.partition.record import PartitionRecord
from tests.federation.harness import make_job

ROOT = Path(__file__).parents[3]
SMALL = ["dataset.max_samples=200", "partition.min_samples=5", "num_clients=4"]


@pytest.fixture
def main(monkeypatch, tmp_path):
    """The entry in this process, which has the imports already."""
    spec = importlib.util.spec_from_file_location("partition_entry", ROOT / "src" / "partition.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["partition.py", *words, f"results_root={tmp_path / 'runs'}"])
        return module.main()

    return call


def partition(root, *words):
    """Run the entry in an empty folder; return exit code, standard output and error."""
    command = [sys.executable, str(ROOT / "src" / "partition.py"), *words, f"results_root={root / 'runs'}"]
    env = {**os.environ, "COLUMNS": "160", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=240)
    return done.returncode, done.stdout, done.stderr


def test_one_partition_is_shown_and_saved_and_is_the_one_a_run_uses(tmp_path):
    code, out, err = partition(tmp_path, *SMALL)
    assert (code, err) == (0, "")
    (folder,) = (tmp_path / "runs" / "partitions").iterdir()
    record = PartitionRecord.load(folder)
    assert folder.name == f"digits_dirichlet_0.5_N4_{record.hash[:12]}"
    assert sorted(path.name for path in folder.iterdir()) == ["partition.json", "partition.npz", "partition.png"]
    with Image.open(folder / "partition.png") as image:
        image.load()
    assert record.hash[:12] in out
    assert f"saved: {folder}" in out
    assert make_job(SMALL, tmp_path / "job").data.record.hash == record.hash


def test_the_same_partition_goes_into_the_same_folder(main, tmp_path):
    assert [main(*SMALL), main(*SMALL, "alignment=gcsa")] == [0, 0]
    assert len(list((tmp_path / "runs" / "partitions").iterdir())) == 1


def test_a_sweep_shows_every_distinct_partition_once(main, tmp_path, capsys):
    words = ["-m", "experiment=alignments", "num_clients=3,4", "alignment=none,gcsa", *SMALL[:2]]
    assert main(*words) == 0
    assert capsys.readouterr().out.count("saved: ") == 2
    names = sorted(path.name[:25] for path in (tmp_path / "runs" / "partitions").iterdir())
    assert [name[: name.index("_N") + 3] for name in names] == ["digits_dirichlet_0.5_N3", "digits_dirichlet_0.5_N4"]


def test_a_partition_that_cannot_be_made_does_not_stop_the_others(main, tmp_path, capsys):
    assert main("-m", "partition=by_domain,iid", "num_clients=4", SMALL[0]) == 1
    assert capsys.readouterr().err.startswith("error: partition=by_domain needs a data set with domains")
    (folder,) = (tmp_path / "runs" / "partitions").iterdir()
    content = json.loads((folder / "partition.json").read_text())
    assert content["rule"] == "IID"
    assert content["sizes"]["train"] == [37] * 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["num_clients=3,4"], "num_clients=3,4 is a sweep; add -m"),
        (["experiment=alignments"], "experiment=alignments is a sweep"),
        (["partition=dirichlett"], "did you mean dirichlet"),
        (["partition.alpha=0"], "partition.alpha is 0"),
        (["partition=quantity_skew", "partition.beta=-1"], "partition.beta is -1; expected a number > 0"),
    ],
)
def test_mistakes_are_answered_before_anything_is_loaded(main, words, message, tmp_path):
    with pytest.raises(SystemExit) as stop:
        main(*words)
    assert str(stop.value).startswith("error: ")
    assert message in str(stop.value)
    assert not (tmp_path / "runs" / "partitions").exists()


def test_cells_of_a_sweep():
    words = ["a=range(0,3)", "b=x,'y z'", "c=[1,2]"]
    assert cells(words)[:3] == [["a=0", "b=x", "c=[1,2]"], ["a=0", "b='y z'", "c=[1,2]"], ["a=1", "b=x", "c=[1,2]"]]
    assert len(cells(words)) == 6
    assert cells([]) == [[]]
    with pytest.raises(ConfigError, match="cannot be listed"):
        cells(["a=interval(0,1)"])
