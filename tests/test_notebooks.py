"""Every notebook runs from top to bottom on a recorded run, from another folder and without a display."""

import ast
import json
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pytest

from fedsaf.tracking.location import results_root
from tests.federation.harness import LIGHT, TINY, make_job, origin, run_job

NOTEBOOKS = sorted((Path(__file__).resolve().parent.parent / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("results")
    for seed in (0, 1):
        words = [*TINY, *LIGHT, "rounds=2", f"seed={seed}"]
        job, start = make_job(words, root / f"run{seed}"), origin(words, root / f"run{seed}")
        start.write(job)
        run_job(job)
        job.outputs.recorder().summarise(start.config_hash, "partition", job.about())
    return root


PRINTED = {
    "compare_runs": ["2 runs", "classifier accuracy", "nearest prototype accuracy"],
    "structure": ["2 runs", "run0"],
}


def test_every_notebook_is_known():
    assert {path.stem for path in NOTEBOOKS} == PRINTED.keys()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_draws(path, results, tmp_path, monkeypatch, capsys):
    matplotlib.use("Agg")
    monkeypatch.setenv("RESULTS_ROOT", str(results))
    monkeypatch.chdir(tmp_path)
    scope = run_cells(path)
    printed = capsys.readouterr().out
    assert all(text in printed for text in PRINTED[path.stem])
    assert len(scope["rows"]), "the last figure shows something"
    assert not list(tmp_path.iterdir())
    plt.close("all")


def test_runs_are_found_from_a_folder_below(results, tmp_path, monkeypatch):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "runs").symlink_to(results)
    monkeypatch.delenv("RESULTS_ROOT", raising=False)
    monkeypatch.chdir(tmp_path / "notebooks")
    assert results_root() == tmp_path / "runs"


def test_runs_are_found_where_the_file_of_the_environment_says(results, tmp_path, monkeypatch):
    (tmp_path / "below").mkdir()
    (tmp_path / "mine").symlink_to(results)
    (tmp_path / ".env").write_text("RESULTS_ROOT=mine\n")
    monkeypatch.delenv("RESULTS_ROOT", raising=False)
    monkeypatch.chdir(tmp_path / "below")
    assert results_root() == tmp_path / "mine"
    monkeypatch.setenv("RESULTS_ROOT", str(results))
    assert results_root() == results


def test_no_runs_anywhere(tmp_path, monkeypatch):
    monkeypatch.setenv("RESULTS_ROOT", str(tmp_path / "gone"))
    with pytest.raises(FileNotFoundError, match="gone' *, which is no folder"):
        results_root()
    monkeypatch.delenv("RESULTS_ROOT")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="set RESULTS_ROOT"):
        results_root()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_holds_no_logic(path):
    for cell in code_cells(path):
        assert cell["outputs"] == [], "outputs are not committed"
        tree = ast.parse("".join(cell["source"]))
        assert not [
            node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.If | ast.While)
        ]


def run_cells(path):
    scope = {}
    for cell in code_cells(path):
        exec("".join(cell["source"]), scope)
    return scope


def code_cells(path):
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
