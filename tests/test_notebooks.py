"""Every notebook runs from top to bottom on a recorded run, from another folder and without a display."""

import json
from pathlib import Path

import matplotlib
import pytest

from tests.federation.harness import LIGHT, TINY, make_job, origin, run_job

NOTEBOOKS = sorted((Path(__file__).resolve().parent.parent / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("results")
    for seed in (0, 1):
        words = [*TINY, *LIGHT, "rounds=2", f"seed={seed}"]
        job = make_job(words, root / f"run{seed}")
        origin(words, root / f"run{seed}").write(job)
        run_job(job)
        job.outputs.recorder().summarise(f"hash{seed}", "partition", job.facts)
    return root


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path, results, tmp_path, monkeypatch, capsys):
    matplotlib.use("Agg")
    monkeypatch.setenv("RESULTS_ROOT", str(results))
    monkeypatch.chdir(tmp_path)
    scope = {}
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [], "outputs are not committed"
            exec("".join(cell["source"]), scope)
    printed = capsys.readouterr().out
    assert "2 runs" in printed
    assert "classifier accuracy" in printed
