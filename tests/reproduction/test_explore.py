"""Figures of any recorded runs, which follow no paper: what a line is, and what its numbers are."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from safetensors.numpy import save_file

import fedsaf
from fedsaf.reproduction.figures.explore import (
    draw_accuracy,
    draw_clients,
    draw_diagnostics,
    draw_embedding,
    draw_geometry,
    draw_traffic,
    named,
    with_prototypes,
)
from fedsaf.reproduction.soundness import UnusableRun
from tests.reproduction.recorded import record_run


@pytest.fixture
def runs(tmp_path):
    return lambda: fedsaf.runs(tmp_path)


def test_seeds_of_one_cell_are_one_line(runs, tmp_path):
    for seed in (0, 1):
        record_run(tmp_path / f"a{seed}", 60 + 4 * seed, seed=seed)
    record_run(
        tmp_path / "b", 70, choices={"method": "fedsaf_rcsa", "alignment": "rcsa"}, method={"name": "fedsaf_rcsa"}
    )
    rows = draw_accuracy(Figure(), runs(), "classifier").query("round == 2")
    assert [name.split(", ")[:2] for name in rows.series] == [["fedsaf_gcsa", "gcsa"], ["fedsaf_rcsa", "rcsa"]]
    assert rows[["mean", "low", "high", "n"]].round(9).values.tolist() == [[62, 60, 64, 2], [70, 70, 70, 1]]
    assert rows.best.all()


def test_what_no_setting_shows_still_tells_cells_apart(runs, tmp_path):
    record_run(tmp_path / "a", optimizer={"lr": 0.01, "momentum": 0.9})
    record_run(tmp_path / "b", optimizer={"lr": 0.01, "momentum": 0.5})
    names = named(runs()).series.unique()
    assert len(names) == 2
    assert all(name.endswith(")") for name in names)
    record_run(tmp_path / "c", optimizer={"lr": 0.1})
    assert sum(name.endswith(")") for name in named(runs()).series.unique()) == 2


def test_clients_and_traffic(runs, tmp_path):
    record_run(tmp_path / "a", 60)
    rows = draw_clients(Figure(), runs(), "classifier")
    assert rows[["client", "mean"]].round(9).values.tolist() == [[0, 60], [1, 55]]
    row = draw_traffic(Figure(), runs(), "reported").squeeze()
    assert (row["mib"], row["mean"]) == pytest.approx((9, 60))  # up 1 and 2, down 3 and 3, to round 2


def test_a_rule_that_no_run_has_draws_nothing(runs, tmp_path):
    record_run(tmp_path / "a", 60)
    for draw in (draw_accuracy, draw_clients, draw_traffic):
        assert draw(Figure(), runs(), "nearest_prototype").empty


def test_diagnostics_over_rounds(runs, tmp_path):
    record_run(tmp_path / "a", diagnostics=[{"shape": 1.0, "rigid": 0.5}, {"shape": 0.75, "rigid": 0.25}])
    figure = Figure()
    rows = draw_diagnostics(figure, runs())
    assert rows[["panel", "round", "mean"]].values.tolist() == [
        ["its shape part", 1, 1.0],
        ["its shape part", 2, 0.75],
        ["its rigid part", 1, 0.5],
        ["its rigid part", 2, 0.25],
    ]
    assert [axes.get_title() for axes in figure.axes] == ["its shape part", "its rigid part"], "of what was measured"


def test_geometry_is_the_cosine_of_each_pair(runs, tmp_path):
    values = np.array([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=np.float32)
    save_file({"labels": np.arange(3), "values": values}, record_run(tmp_path / "a") / "prototypes.safetensors")
    (folder,) = with_prototypes(runs())
    half = np.sqrt(0.5)
    assert np.allclose(draw_geometry(Figure(), folder), [[1, 0, half], [0, 1, half], [half, half, 1]])
    assert len(draw_embedding(Figure(), folder)) == 4


def test_runs_without_prototypes_are_refused_by_name(runs, tmp_path):
    folder = record_run(tmp_path / "a", uploads=())
    with pytest.raises(UnusableRun, match="none of 1 runs holds uploads_prototypes.safetensors"):
        with_prototypes(runs())
    with pytest.raises(UnusableRun, match="a has no prototypes.safetensors"):
        draw_geometry(Figure(), folder)
    (folder / "prototypes.safetensors").write_bytes(b"torn")
    with pytest.raises(UnusableRun, match="a: prototypes.safetensors cannot be read"):
        draw_geometry(Figure(), folder)
