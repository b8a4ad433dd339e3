"""Figures of any recorded runs, which follow no paper: what a line is, and what its numbers are."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from safetensors.numpy import save_file

from fedsaf.reproduction.collect import UnusableRun, collect
from fedsaf.reproduction.figures.cells import cells_of
from fedsaf.reproduction.figures.compare import draw_accuracy, draw_clients, draw_traffic
from fedsaf.reproduction.figures.structure import draw_diagnostics, draw_embedding, draw_geometry, with_prototypes
from tests.reproduction.recorded import record_run


@pytest.fixture
def runs(tmp_path):
    def read():
        return collect([tmp_path])[0]

    return read


def test_seeds_of_one_cell_are_one_line(runs, tmp_path):
    for seed in (0, 1):
        record_run(tmp_path / f"a{seed}", 60 + 4 * seed, seed=seed)
    record_run(tmp_path / "b", 70, choices={"method": "fedsaf_rcsa", "alignment": "rcsa"}, alignment={"loss": "rcsa"})
    first, second = cells_of(runs())
    assert [run.seed for run in first.runs] == [0, 1]
    assert "fedsaf_gcsa" in first.name
    assert "fedsaf_rcsa" in second.name
    rows = draw_accuracy(Figure(), runs(), "classifier")
    last = [tuple(round(row[key], 9) for key in ("mean", "low", "high", "n")) for row in rows if row["round"] == 2]
    assert last == [(62, 60, 64, 2), (70, 70, 70, 1)]


def test_what_no_setting_shows_still_tells_cells_apart(runs, tmp_path):
    record_run(tmp_path / "a", optimizer={"lr": 0.01})
    record_run(tmp_path / "b", optimizer={"lr": 0.1})
    names = [cell.name for cell in cells_of(runs())]
    assert len(set(names)) == 2
    assert all(name.endswith(")") for name in names)


def test_clients_and_traffic(runs, tmp_path):
    record_run(tmp_path / "a", 60)
    rows = draw_clients(Figure(), runs(), "classifier")
    assert [(row["client"], round(row["mean"], 9)) for row in rows] == [(0, 60), (1, 55)]
    (row,) = draw_traffic(Figure(), runs(), "reported")
    assert (row["mib"], row["mean"]) == pytest.approx((9, 60))  # up 1 and 2, down 3 and 3, to round 2


def test_a_rule_that_no_run_has_draws_nothing(runs, tmp_path):
    record_run(tmp_path / "a", 60)
    assert draw_accuracy(Figure(), runs(), "nearest_prototype") == []
    assert draw_clients(Figure(), runs(), "nearest_prototype") == []
    assert draw_traffic(Figure(), runs(), "nearest_prototype") == []


def test_diagnostics_over_rounds(runs, tmp_path):
    record_run(tmp_path / "a", diagnostics=[{"shape": 1.0, "rigid": 0.5}, {"shape": 0.75, "rigid": 0.25}])
    figure = Figure()
    rows = draw_diagnostics(figure, runs())
    assert [(row["panel"], row["round"], row["mean"]) for row in rows] == [
        ("its shape part", 1, 1.0),
        ("its shape part", 2, 0.75),
        ("its rigid part", 1, 0.5),
        ("its rigid part", 2, 0.25),
    ]
    assert [len(axes.lines) for axes in figure.axes] == [0, 0, 1, 1, 0, 0]


def test_geometry_is_the_cosine_of_each_pair(runs, tmp_path):
    values = np.array([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=np.float32)
    save_file({"labels": np.arange(3), "values": values}, record_run(tmp_path / "a") / "prototypes.safetensors")
    (run,) = with_prototypes(runs())
    half = np.sqrt(0.5)
    assert np.allclose(draw_geometry(Figure(), run), [[1, 0, half], [0, 1, half], [half, half, 1]])
    assert len(draw_embedding(Figure(), run)) == 4


def test_runs_without_prototypes_are_refused_by_name(runs, tmp_path):
    folder = record_run(tmp_path / "a", uploads=())
    with pytest.raises(UnusableRun, match="none of 1 runs holds uploads_prototypes.safetensors"):
        with_prototypes(runs())
    with pytest.raises(UnusableRun, match="a has no prototypes.safetensors"):
        draw_geometry(Figure(), runs()[0])
    (folder / "prototypes.safetensors").write_bytes(b"torn")
    with pytest.raises(UnusableRun, match="a: prototypes.safetensors cannot be read"):
        draw_geometry(Figure(), runs()[0])
