"""Every run that the sweep of a figure plans has a place in that figure, and the runs of a place are one experiment."""

from pathlib import Path

import pytest

from fedsaf.rebuild.sweep import Composer, experiments_of, runs_of
from fedsaf.results.collect import settings_of, values_of
from fedsaf.results.figures.definition import figure_definitions
from fedsaf.results.selection import on_stand_in, satisfies

COMPOSER = Composer(Path(__file__).resolve().parents[2] / "conf")
WITH_RUNS = [name for name, figure in figure_definitions().items() if not figure.tables]


def test_figures_of_tables_need_no_sweep_and_all_others_have_one():
    assert [name for name in figure_definitions() if name not in WITH_RUNS] == ["saf-f3"]
    for name in WITH_RUNS:
        assert experiments_of(figure_definitions()[name].target, COMPOSER.conf)


@pytest.mark.parametrize(("name", "tier"), [("saf-f1", "small"), ("saf-f7", "full"), ("tgp-k5", "smoke")])
def test_a_few_figures(name, tier):
    check(figure_definitions()[name].target, tier)


@pytest.mark.slow
@pytest.mark.parametrize("tier", ["full", "small", "smoke"])
@pytest.mark.parametrize("target", dict.fromkeys(figure_definitions()[name].target for name in WITH_RUNS))
def test_all_figures(target, tier):
    check(target, tier)


def check(target, tier):
    """Look at all figures of a target together: each of its runs belongs to one of them."""
    planned = runs_of(target, tier, [], None, COMPOSER)
    settings = [settings_of(run.config, run.choices) for run in planned]
    values = [values_of(run.config) for run in planned]
    placed = set()
    for figure in figure_definitions().values():
        for place in figure.places() if figure.target == target else ():
            required = figure.requirement(place, tier)
            found = [i for i, of_run in enumerate(settings) if satisfies(of_run, required)]
            if not found and tier != "full":
                found = [i for i, of_run in enumerate(settings) if satisfies(of_run, on_stand_in(required))]
            placed |= set(found)
            assert found, str(place)
            assert all(values[i] == values[found[0]] for i in found), str(place)
    assert placed == set(range(len(planned)))
