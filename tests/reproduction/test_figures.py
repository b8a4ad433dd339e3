"""Figures of the papers: numbers against ones made by hand, what is said of them, and that just they are drawn."""

import math

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from fedsaf.reproduction.comparable import comparable
from fedsaf.reproduction.experiments import cells, displays
from fedsaf.reproduction.figures.papers import ROLES, build, caption_text, draw, named_keys, page, write
from fedsaf.reproduction.figures.prototypes import LocalPrototypes, embed, silhouette
from fedsaf.reproduction.figures.style import line_style
from fedsaf.reproduction.frame import collect
from fedsaf.reproduction.matching import Matcher
from tests.reproduction.recorded import record_place, record_uploads

FIGURES = displays("figure")
GCSA = "CIFAR-10, FedSAF-GCSA"


@pytest.fixture
def record(tmp_path):
    """Record a run of a place of a figure, as its sweep would make it."""
    return lambda figure, place, name, *arguments, **options: record_place(
        tmp_path / "runs" / name, figure, place, *arguments, **options
    )


@pytest.fixture
def built(tmp_path):
    return lambda name, scale="smoke": build(FIGURES[name], scale, Matcher(collect([tmp_path / "runs"])))


@pytest.fixture
def rows(built, tmp_path):
    """Build and write a figure; return it and the rows of its CSV."""

    def read(name):
        figure = built(name)
        write(figure, tmp_path / "out")
        return figure, pd.read_csv(tmp_path / "out" / f"{name}_smoke.csv").fillna("")

    return read


def picture(built):
    figure = Figure()
    draw(built, figure)
    return figure


def numbers(rows, *columns):
    return [[value if isinstance(value, str) else round(value, 9) for value in row] for row in rows[[*columns]].values]


def test_figure_1_mean_and_range_over_seeds(record, rows):
    for seed in (0, 1, 2):
        dimensions = [{"effective_dimension": 4.0 + seed}, {"effective_dimension": 8.0 + 2 * seed}]
        record("saf-f1", "Hetero-Local", f"a{seed}", seed=seed, diagnostics=dimensions)
    figure, drawn = rows("saf-f1")
    assert numbers(drawn, "series", "round", "mean", "low", "high", "n") == [
        ["Hetero-Local", 1, 5, 4, 6, 3],
        ["Hetero-Local", 2, 10, 8, 12, 3],
    ]
    assert figure.missing == ["Homo-Local", "Homo-Shared"]


def test_figure_5_gains_by_seed_over_both_weights_zero(record, rows):
    for seed, origin, other in ((0, 50, 53), (1, 60, 61)):
        record("saf-f5", "FedSAF-GCSA, 0.0, 0.0", f"zero{seed}", origin, seed=seed)
        record("saf-f5", "FedSAF-GCSA, 0.1, 10.0", f"some{seed}", other, seed=seed)
    record("saf-f5", "FedSAF-GCSA, 1.0, 1.0", "third", 99, seed=2)
    record("saf-f5", "FedSAF-MSE, 1.0, 1.0", "alone")
    figure, drawn = rows("saf-f5")
    assert numbers(drawn, "panel", "lambda", "gamma", "mean", "low", "high", "n", "accuracy") == [
        ["FedSAF-GCSA", 0, 0, 0, 0, 0, 2, 55],
        ["FedSAF-GCSA", 0.1, 10, 2, 1, 3, 2, 57],
    ]
    assert "FedSAF-MSE: no run with both weights 0, so no gain is known" in figure.problems
    assert "FedSAF-GCSA, lambda=0.01, gamma=0" in figure.missing
    assert "FedSAF-GCSA, lambda=1, gamma=1 (no run with both weights 0 on the same data and seed)" in figure.missing


def test_figure_6_each_client_in_the_best_round(record, rows):
    for seed, hits in ((0, 60), (1, 64)):
        record("saf-f6", GCSA, f"a{seed}", hits, seed=seed)
    figure, drawn = rows("saf-f6")
    assert numbers(drawn, "series", "client", "architecture", "mean", "low", "high") == [
        ["FedSAF-GCSA", 0, "net0", 62, 60, 64],
        ["FedSAF-GCSA", 1, "net1", 57, 55, 59],
    ]
    assert "CIFAR-10, Local" in figure.missing


def test_figure_7_silhouettes_of_prototypes_on_a_line(record, rows, tmp_path):
    """Places 0, 10 of client 0 and 1, 11 of client 1; classes 0, 1, 0, 1."""
    for seed in (0, 1):
        record("saf-f7", "FedSAF-GCSA", f"a{seed}", seed=seed)
    figure, drawn = rows("saf-f7")
    assert numbers(drawn, "seed", "client", "class") == [[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1]]
    assert drawn.x.nunique() == 4
    by_class = (9.5 / 10.5 + 8.5 / 9.5) / 2  # (b - a) / max(a, b), a = 1, b = 10.5 and 9.5
    measured = pd.read_csv(tmp_path / "out" / "saf-f7_smoke_silhouettes.csv")
    assert measured.seed.tolist() == [0, 1]
    assert np.allclose(measured[["by_class", "by_client"]].to_numpy(), [by_class, -0.45], atol=1e-6)
    assert figure.missing == ["FedSAF-MSE"]


def test_figure_8_own_alignment_and_gcsa(record, rows):
    record("saf-f8", "CIFAR-10, FedProto, Dir(0.1)", "own", 61)
    record("saf-f8", "CIFAR-10, FedProto + GCSA, Dir(0.1)", "gcsa", 65)
    figure, drawn = rows("saf-f8")
    assert numbers(drawn, "panel", "point", "series", "mean") == [
        ["CIFAR-10", "Dir(0.1)", "FedProto", 61],
        ["CIFAR-10", "Dir(0.1)", "FedProto + GCSA", 65],
    ]
    assert len(figure.missing) == 34
    (axes,) = picture(figure).axes
    assert [text.get_text() for text in axes.texts] == ["+4.00"]
    assert [tick.get_text() for tick in axes.get_xticklabels()[:3]] == [
        f"{name}, Dir(0.1)" for name in ("FedProto", "FedTGP", "AlignFed")
    ]


def test_figure_9_curves_with_the_best_round_of_the_mean(record, rows):
    record("saf-f9", "CIFAR-100, FedSAF-MSE", "other")
    for seed, hits in ((0, 60), (1, 64)):
        record("saf-f9", GCSA, f"a{seed}", hits, seed=seed)
    figure, drawn = rows("saf-f9")
    assert drawn.panel.unique().tolist() == ["CIFAR-10", "CIFAR-100"], "panels stand in the order of the sweep"
    curve = drawn[drawn.panel == "CIFAR-10"]
    assert numbers(curve, "round", "mean", "low", "high") == [[1, 52, 50, 54], [2, 62, 60, 64]]
    assert curve.best.tolist() == [False, True]
    axes = picture(figure).axes[0]
    (band,), (star,) = axes.collections, [line for line in axes.lines if line.get_marker() == "*"]
    assert (star.get_xdata().tolist(), star.get_ydata().tolist()) == ([2], [62])
    corners = band.get_paths()[0].vertices[:, 1]
    assert (corners.min(), corners.max()) == (50, 64)


def test_figure_10_a_missing_point_breaks_the_line(record, rows):
    for epochs, hits in ((1, 55), (5, 60), (20, 58)):
        record("saf-f10", f"FedSAF-GCSA, {epochs}", f"{epochs}", hits)
    figure, drawn = rows("saf-f10")
    assert numbers(drawn, "E", "mean") == [[1, 55], [5, 60], [20, 58]]
    assert "FedSAF-GCSA, E=10" in figure.missing
    (axes,) = picture(figure).axes
    assert np.isnan(axes.containers[0].lines[0].get_ydata(orig=False)).tolist() == [False, False, True, False]


def test_margins_of_the_server_and_of_the_best_client(record, rows):
    margins = [{"global_margin_mean": 0.5}, {"global_margin_mean": 0.25}]
    record("tgp-k5", "FedProto, global", "a", diagnostics=margins)
    figure, drawn = rows("tgp-k5")
    assert numbers(drawn, "series", "round", "mean") == [
        ["global", 1, 0.5],
        ["global", 2, 0.25],
        ["best client", 1, 2],  # margins of the two clients are 1 and 2
        ["best client", 2, 2],
    ]
    assert figure.missing == ["FedTGP, global", "FedTGP, best client"]


def test_fedproc_figures_of_the_global_model(record, rows):
    record("proc-f4", "CIFAR-10, FedAvg", "a", 70)
    assert numbers(rows("proc-f4")[1], "panel", "series", "round", "mean") == [
        ["CIFAR-10", "FedAvg", 1, 60],
        ["CIFAR-10", "FedAvg", 2, 70],
    ]
    for epochs, hits in ((1, 40), (40, 45)):
        record("proc-f5", f"MOON, {epochs}", f"{epochs}", hits)
    figure, drawn = rows("proc-f5")
    assert numbers(drawn, "series", "E", "mean") == [["MOON", 1, 40], ["MOON", 40, 45]]
    assert "classifier accuracy, pooled over clients, on the test parts, last round" in figure.shown


def test_nothing_to_draw(built, tmp_path):
    for name in FIGURES:
        assert built(name).rows.empty
        with pytest.raises(ValueError, match=f"{name}: no finished run of scale smoke"):
            write(built(name), tmp_path / "out")
    assert not list(tmp_path.glob("out/*.csv"))


def test_files_of_a_figure(record, built, tmp_path):
    record("saf-f7", "FedSAF-GCSA", "a")
    for _ in range(2):
        write(built("saf-f7"), tmp_path / "out")
        found = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
        endings = (".csv", ".md", ".pdf", ".png", "_silhouettes.csv")
        assert sorted(found) == [f"saf-f7_smoke{ending}" for ending in endings]
        assert found["saf-f7_smoke.pdf"].startswith(b"%PDF")
        first = locals().get("first", found)
        assert found == first, "the same runs give the same bytes"
    assert b"- left out, no number: FedSAF-MSE" in found["saf-f7_smoke.md"]


def test_one_seed_has_no_range(record, built):
    record("saf-f9", GCSA, "a")
    one = built("saf-f9")
    assert "One seed each (n = 1), hence no range." in caption_text(one, 3)
    assert not picture(one).axes[0].collections
    record("saf-f9", GCSA, "b", seed=1)
    assert "Mean over n = 2 seeds; ranges go from the smallest to the largest." in caption_text(built("saf-f9"), 3)


def test_the_caption_says_scale_rule_stand_in_and_what_is_left_out(record, built):
    record("saf-f6", GCSA, "a", stand_in=True)
    text = caption_text(built("saf-f6"), 1)
    assert text.startswith("Scale smoke. Shown: classifier accuracy in % of each client")
    assert "On digits in place of the data that are named (all numbers)." in text
    assert "Left out for want of runs, 9 in all: CIFAR-10, Local; and 8 more." in text
    assert built("saf-f6", "full").rows.empty, "scales are never mixed, and nothing stands in at full"


def test_a_run_with_nan_is_named_and_not_drawn(record, built):
    record("saf-f9", GCSA, "good")
    path = record("saf-f9", GCSA, "bad", 64, seed=1) / "metrics.jsonl"
    path.write_text(path.read_text().replace('"client_mean": 0.64', '"client_mean": NaN'))
    figure = built("saf-f9")
    assert set(figure.rows.n) == {1}
    assert f"**does not count**: {GCSA}: bad: metrics.jsonl, line 2" in page(figure)
    assert "holds NaN" in page(figure)
    assert "1 faults of runs" in caption_text(figure, 3)


def test_an_unfinished_run_is_noted_and_not_drawn(record, built):
    record("saf-f9", GCSA, "a", finish=False)
    assert built("saf-f9").rows.empty
    assert built("saf-f9").notes == [f"{GCSA}: a: failed: ValueError: no"]


def test_a_figure_says_what_its_series_do_not_share(record, built, monkeypatch):
    for name in ("Hetero-Local", "Homo-Local"):
        record("saf-f1", name, name, diagnostics={"effective_dimension": 4.0})
    assert not built("saf-f1").notes
    monkeypatch.delitem(FIGURES["saf-f1"].node, "differs")
    assert built("saf-f1").notes == [
        "no fair comparison: run with different model_group.architectures, model_group.name"
    ]


@pytest.mark.parametrize(
    ("uploads", "reason"),
    [
        ((), "a has no uploads_prototypes.safetensors"),
        (((0, 0, 1.0), (0, 1, math.nan), (1, 0, 2.0)), "holds numbers that are not finite"),
        (b"torn", "uploads_prototypes.safetensors cannot be read"),
    ],
)
def test_local_prototypes_that_cannot_be_used(record, built, uploads, reason):
    folder = record("saf-f7", "FedSAF-GCSA", "a", uploads=() if isinstance(uploads, bytes) else uploads)
    if isinstance(uploads, bytes):
        (folder / "uploads_prototypes.safetensors").write_bytes(uploads)
    figure = built("saf-f7")
    assert figure.rows.empty
    assert any(reason in text for text in figure.problems)
    assert "FedSAF-GCSA" in figure.missing


def test_too_few_prototypes_for_a_picture_still_have_their_row(record, built):
    record_uploads(record("saf-f7", "FedSAF-GCSA", "a"), [(0, 0, 1.0), (1, 0, 2.0)])
    figure = built("saf-f7")
    assert figure.rows.empty
    row = figure.tables["silhouettes"].squeeze()
    assert (row.by_class, row.by_client, row.num_prototypes) == (None, None, 2)
    with pytest.raises(ValueError, match="got 2 prototypes, expected at least 3"):
        embed(LocalPrototypes(np.zeros(2), np.zeros(2), np.zeros((2, 4))))


def test_a_silhouette_needs_two_groups_and_one_of_several():
    means = np.arange(6.0).reshape(3, 2)
    assert silhouette(means, np.array([0, 0, 0])) is None
    assert silhouette(means, np.array([0, 1, 2])) is None
    assert silhouette(means, np.array([0, 0, 1])) is not None


def test_a_diagnostic_that_was_never_taken(record, built):
    record("saf-f1", "Homo-Local", "a")
    assert built("saf-f1").rows.empty
    assert built("saf-f1").problems == ["Homo-Local: a has no number of this kind"]


def test_a_field_that_was_not_run_is_blank_and_not_zero(record, built):
    record("saf-f5", "FedSAF-GCSA, 0.0, 0.0", "zero", 50)
    record("saf-f5", "FedSAF-GCSA, 1.0, 1.0", "one", 53)
    axes = picture(built("saf-f5")).axes[0]
    fields = axes.collections[0].get_array()
    assert fields.count() == 2
    assert (fields[0, 0], fields[3, 3]) == (0, pytest.approx(3))
    assert sorted(text.get_text() for text in axes.texts) == ["+3.00", "0\n(reference)"]


def test_a_missing_loss_has_no_bar(record, built):
    record("saf-f6", GCSA, "a")
    (axes,) = picture(built("saf-f6")).axes
    heights = sorted(patch.get_height() for patch in axes.patches if isinstance(patch, Rectangle))
    assert heights == pytest.approx([55, 60])


def test_series_differ_without_colour():
    looks = [line_style(index) for index in range(14)]
    assert len({(look["marker"], look["linestyle"]) for look in looks}) == 14


@pytest.mark.parametrize(("name", "scale"), [("saf-f1", "smoke"), ("saf-f7", "full"), ("tgp-k5", "small")])
def test_a_few_sweeps(name, scale):
    check_sweep(FIGURES[name].target, scale)


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["smoke", "small", "full"])
@pytest.mark.parametrize("target", sorted({figure.target for figure in FIGURES.values()}))
def test_all_sweeps(target, scale):
    check_sweep(target, scale)


def check_sweep(target, scale):
    """Every run that the sweep of a figure starts has a place in it, and the runs of a panel may stand side by side."""
    started = set()
    for figure in (one for one in FIGURES.values() if one.target == target):
        panels = {}
        for place in figure.places(ROLES, scale):
            cell = place.cell.started
            started.add(cell.key)
            panels.setdefault((place.name("panels"), cell.choices["dataset"]), []).append(cell.config)
        assert not any(comparable(configs, named_keys(figure)) for configs in panels.values()), figure.id
    assert started == {cell.key for cell in cells(target, scale)}
