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

ENTRY = Path(__file__).parents[3] / "src" / "partition.py"
SMALL = ["dataset.max_samples=200", "partition.min_samples=5", "num_clients=4"]


@pytest.fixture
def main(monkeypatch, tmp_path):
    """The entry in this process, which has the imports already."""
    spec = importlib.util.spec_from_file_location("partition_entry", ENTRY)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["partition.py", *words, f"results_root={tmp_path / 'runs'}"])
        return module.main()

    return call


def saved(root):
    return sorted((root / "runs" / "partitions").iterdir())


def test_one_partition_is_shown_and_saved_and_is_the_one_a_run_uses(tmp_path):
    command = [sys.executable, str(ENTRY), *SMALL, f"results_root={tmp_path / 'runs'}"]
    env = {**os.environ, "COLUMNS": "160", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")
    (folder,) = saved(tmp_path)
    record = PartitionRecord.load(folder)
    assert folder.name == f"digits_dirichlet_0.5_N4_{record.hash[:12]}"
    assert sorted(path.name for path in folder.iterdir()) == ["partition.json", "partition.npz", "partition.png"]
    with Image.open(folder / "partition.png") as image:
        image.load()
    assert record.hash[:12] in done.stdout
    assert f"saved: {folder}" in done.stdout
    assert make_job(SMALL, tmp_path / "job").data.record.hash == record.hash


def test_a_sweep_shows_every_distinct_partition_once_and_each_has_its_folder(main, tmp_path, capsys):
    words = ["-m", "experiment=alignments", "num_clients=3,4", "alignment=none,gcsa", *SMALL[:2]]
    assert main(*words) == 0
    assert capsys.readouterr().out.count("saved: ") == 2
    assert [path.name[:23] for path in saved(tmp_path)] == ["digits_dirichlet_0.5_N3", "digits_dirichlet_0.5_N4"]
    assert main(*SMALL, "alignment=rcsa") == 0
    assert len(saved(tmp_path)) == 2


def test_a_partition_that_cannot_be_made_does_not_stop_the_others(main, tmp_path, capsys):
    assert main("-m", "partition=by_domain,iid", "num_clients=4", SMALL[0]) == 1
    assert capsys.readouterr().err.startswith("error: partition=by_domain needs a data set with domains")
    (folder,) = saved(tmp_path)
    content = json.loads((folder / "partition.json").read_text())
    assert content["rule"] == "IID"
    assert content["sizes"]["train"] == [37] * 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["num_clients=3,4"], "num_clients=3,4 is a sweep; add -m"),
        (["experiment=alignments"], "experiment=alignments is a sweep"),
        (["partition=quantity_skew", "partition.beta=-1"], "partition.beta is -1; expected a number > 0"),
    ],
)
def test_mistakes_are_answered_before_anything_is_loaded(main, words, message, tmp_path):
    with pytest.raises(SystemExit, match=f"error: .*{message}"):
        main(*words)
    assert not (tmp_path / "runs" / "partitions").exists()


def test_cells_of_a_sweep():
    words = ["a=range(0,3)", "b=x,'y z'", "c=[1,2]"]
    assert cells(words)[:3] == [["a=0", "b=x", "c=[1,2]"], ["a=0", "b='y z'", "c=[1,2]"], ["a=1", "b=x", "c=[1,2]"]]
    assert len(cells(words)) == 6
    assert cells([]) == [[]]
    with pytest.raises(ConfigError, match="cannot be listed"):
        cells(["a=interval(0,1)"])
