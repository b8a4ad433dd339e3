"""Figures say what they show and what they lack, and draw just the numbers they have."""

import math

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from fedsaf.reproduction.collect import collect
from fedsaf.reproduction.figures.build import KINDS, build, caption_text, draw, page, write
from fedsaf.reproduction.figures.definition import figure_definitions, figures_of
from fedsaf.reproduction.figures.embedding import embed, silhouette
from fedsaf.reproduction.figures.style import line_style
from fedsaf.reproduction.selection import table_definitions
from tests.reproduction.recorded import record_run, record_uploads


@pytest.fixture
def built(tmp_path):
    return lambda name, scale="full": build(figure_definitions()[name], scale, *collect([tmp_path]))


def picture(built):
    figure = Figure()
    draw(built, figure)
    return figure


def test_names_and_targets():
    assert [figure.name for figure in figures_of(["figure-7", "saf-f1"])] == ["saf-f1", "saf-f7"]
    assert [figure.name for figure in figures_of(["fedproc-figures"])] == ["proc-f4", "proc-f5"]
    with pytest.raises(ValueError, match=r"no figure is called 'figure-2'; did you mean figure-"):
        figures_of(["figure-2"])


def test_every_definition_can_be_drawn():
    for figure in figure_definitions().values():
        assert figure.kind in KINDS or figure.tables
        assert not set(figure.tables and figure.tables[0]) - table_definitions().keys()


def test_nothing_to_draw(built, tmp_path):
    for name in figure_definitions():
        empty = built(name)
        assert empty.is_empty
        with pytest.raises(ValueError, match=f"{name}: no finished run of scale full"):
            write(empty, tmp_path / "out")
    assert not list(tmp_path.glob("out/*.csv"))


def test_files_of_a_figure(built, tmp_path):
    record_run(tmp_path / "a", 60)
    write(built("saf-f7"), tmp_path / "out")
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == [f"saf-f7_full{ending}" for ending in (".csv", ".md", ".pdf", ".png", "_silhouettes.csv")]
    first = (tmp_path / "out" / "saf-f7_full.pdf").read_bytes()
    assert first.startswith(b"%PDF")
    write(built("saf-f7"), tmp_path / "out")
    assert (tmp_path / "out" / "saf-f7_full.pdf").read_bytes() == first
    assert "- left out, no number: FedSAF-MSE" in (tmp_path / "out" / "saf-f7_full.md").read_text()


def test_one_seed_has_no_range(built, tmp_path):
    record_run(tmp_path / "a", 60)
    one = built("saf-f9")
    assert "One seed each (n = 1), hence no range." in caption_text(one, 3)
    assert not picture(one).axes[0].collections
    record_run(tmp_path / "b", 64, seed=1)
    two = built("saf-f9")
    assert "Mean over n = 2 seeds; ranges go from the smallest to the largest." in caption_text(two, 3)
    (band,) = picture(two).axes[0].collections
    corners = band.get_paths()[0].vertices
    assert (corners[:, 1].min(), corners[:, 1].max()) == (50, 64)


def test_the_caption_says_scale_rule_stand_in_and_what_is_left_out(built, tmp_path):
    changes = {"scale": "small", "stand_in_for": "cifar10"}
    record_run(tmp_path / "a", 60, 55, choices={"dataset": "digits"}, **changes)
    text = caption_text(built("saf-f6", "small"), 1)
    assert text.startswith("Scale small. Shown: classifier accuracy in % of each client")
    assert "On digits in place of the data that are named (all numbers)." in text
    assert "Left out for want of runs, 9 in all: CIFAR-10, Local; and 8 more." in text
    assert built("saf-f6", "full").is_empty, "scales are never mixed, and nothing stands in at full"


def test_a_run_with_nan_is_named_and_not_drawn(built, tmp_path):
    record_run(tmp_path / "good", 60)
    bad = record_run(tmp_path / "bad", 64, seed=1)
    path = bad / "metrics.jsonl"
    path.write_text(path.read_text().replace('"client_mean": 0.64', '"client_mean": NaN'))
    figure = built("saf-f9")
    assert {row["n"] for row in figure.numbers.rows} == {1}
    assert any("bad: metrics.jsonl, line 2: holds NaN" in text for text in figure.numbers.problems)
    assert "**does not count**: CIFAR-10, FedSAF-GCSA: bad: metrics.jsonl, line 2: holds NaN" in page(figure)
    assert "1 faults of runs" in caption_text(figure, 3)


def test_an_unfinished_run_is_noted_and_not_drawn(built, tmp_path):
    record_run(tmp_path / "a", finish=False)
    figure = built("saf-f9")
    assert figure.is_empty
    assert figure.numbers.notes == ["CIFAR-10, FedSAF-GCSA: a: failed: ValueError: no"]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ((), "a has no uploads_prototypes.safetensors"),
        (((0, 0, 1.0), (0, 1, math.nan), (1, 0, 2.0)), "holds numbers that are not finite"),
    ],
)
def test_local_prototypes_that_cannot_be_used(built, tmp_path, rows, reason):
    record_run(tmp_path / "a", uploads=rows)
    figure = built("saf-f7")
    assert figure.is_empty
    assert any(reason in text for text in figure.numbers.problems)
    assert "FedSAF-GCSA" in figure.numbers.missing


def test_damaged_local_prototypes(built, tmp_path):
    path = record_run(tmp_path / "a") / "uploads_prototypes.safetensors"
    path.write_bytes(path.read_bytes()[:20])
    figure = built("saf-f7")
    assert any("uploads_prototypes.safetensors cannot be read" in text for text in figure.numbers.problems)


def test_too_few_prototypes_for_a_picture_still_have_their_row(built, tmp_path):
    record_uploads(record_run(tmp_path / "a"), [(0, 0, 1.0), (1, 0, 2.0)])
    figure = built("saf-f7")
    assert figure.is_empty
    (row,) = figure.numbers.tables["silhouettes"]
    assert (row["by_class"], row["by_client"], row["num_prototypes"]) == (None, None, 2)
    with pytest.raises(ValueError, match="got 2 prototypes, expected at least 3"):
        embed(np.zeros((2, 4)))


def test_a_silhouette_needs_two_groups_and_one_of_several():
    rows = np.arange(6.0).reshape(3, 2)
    assert silhouette(rows, np.array([0, 0, 0])) is None
    assert silhouette(rows, np.array([0, 1, 2])) is None
    assert silhouette(rows, np.array([0, 0, 1])) is not None


def test_a_diagnostic_that_was_never_taken(built, tmp_path):
    protocol = {"initialisation": "independent"}
    record_run(tmp_path / "a", choices={"scenario": "homo_local"}, num_clients=9, rounds=50, protocol=protocol)
    figure = built("saf-f1")
    assert figure.is_empty
    assert figure.numbers.problems == ["Homo-Local: a has no number of this kind"]


def test_a_field_that_was_not_run_is_blank_and_not_zero(built, tmp_path):
    cifar100 = {"dataset": "cifar100"}
    record_run(tmp_path / "zero", 50, choices=cifar100, alignment={"proto_weight": 0, "inst_weight": 0})
    record_run(tmp_path / "one", 53, choices=cifar100)
    axes = picture(built("saf-f5")).axes[0]
    fields = axes.collections[0].get_array()
    assert fields.count() == 2
    assert fields[0, 0] == 0
    assert fields[3, 3] == pytest.approx(3)
    assert sorted(text.get_text() for text in axes.texts) == ["+3.00", "0\n(reference)"]


def test_a_missing_loss_has_no_bar(built, tmp_path):
    record_run(tmp_path / "a", 60)
    (axes,) = picture(built("saf-f6")).axes
    heights = sorted(patch.get_height() for patch in axes.patches if isinstance(patch, Rectangle))
    assert heights == pytest.approx([55, 60])


def test_a_missing_point_breaks_the_line(built, tmp_path):
    for epochs in (1, 10):
        choices = {"dataset": "cifar100"}
        record_run(tmp_path / f"{epochs}", 60, choices=choices, local_epochs=epochs, partition={"alpha": 0.5})
    (axes,) = picture(built("saf-f10")).axes
    values = axes.containers[0].lines[0].get_ydata(orig=False)
    assert np.isnan(values).tolist() == [False, True, False, True]


def test_the_best_round_is_marked(built, tmp_path):
    record_run(tmp_path / "a", 60)
    stars = [line for line in picture(built("saf-f9")).axes[0].lines if line.get_marker() == "*"]
    assert [(float(*star.get_xdata()), float(*star.get_ydata())) for star in stars] == [(2, 60)]


def test_series_differ_without_colour():
    looks = [line_style(index) for index in range(14)]
    assert len({(look["marker"], look["linestyle"]) for look in looks}) == 14
