"""Every run that the sweep of a figure plans has a place in that figure, and the runs of a place are one experiment."""

from pathlib import Path

import pytest

from fedsaf.reproduction.agreement import added_words, differences
from fedsaf.reproduction.figures.definition import figure_definitions
from fedsaf.reproduction.selection import on_stand_in, satisfies
from fedsaf.reproduction.sweep import experiments_of
from tests.reproduction.planned import planned

CONF = Path(__file__).resolve().parents[2] / "conf"
WITH_RUNS = [name for name, figure in figure_definitions().items() if not figure.tables]


def test_figures_of_tables_need_no_sweep_and_all_others_have_one():
    assert [name for name in figure_definitions() if name not in WITH_RUNS] == ["saf-f3"]
    for name in WITH_RUNS:
        assert experiments_of(figure_definitions()[name].target, CONF)


@pytest.mark.parametrize(("name", "scale"), [("saf-f1", "small"), ("saf-f7", "full"), ("tgp-k5", "smoke")])
def test_a_few_figures(name, scale):
    check(figure_definitions()[name].target, scale)


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["full", "small", "smoke"])
@pytest.mark.parametrize("target", dict.fromkeys(figure_definitions()[name].target for name in WITH_RUNS))
def test_all_figures(target, scale):
    check(target, scale)


def check(target, scale):
    """Look at all figures of a target together: each of its runs belongs to one of them."""
    runs = planned(target, scale)
    placed = set()
    for figure in figure_definitions().values():
        by_panel = {}
        for place in figure.places() if figure.target == target else ():
            required = figure.requirement(place, scale)
            found = [run for run in runs if satisfies(run.settings, required)]
            if not found and scale != "full":
                found = [run for run in runs if satisfies(run.settings, on_stand_in(required))]
            placed |= {run.folder for run in found}
            assert found, str(place)
            assert all(run.values == found[0].values for run in found), str(place)
            by_panel.setdefault(place.panel, []).extend((run, required) for run in found)
            assert not any(added_words(run, required) for run in found if scale == "full"), str(place)
        assert not any(differences(of_panel) for of_panel in by_panel.values()), "series of a panel can be compared"
    assert placed == {run.folder for run in runs}
