"""Every run that a sweep of a table plans has a place in that table, and every cell has its seeds."""

import itertools
from pathlib import Path

import pytest

from fedsaf.rebuild.sweep import Composer, runs_of
from fedsaf.results.agreement import added_words, differences
from fedsaf.results.collect import RecordedRun, settings_of, values_of
from fedsaf.results.selection import on_stand_in, satisfies, table_definitions

COMPOSER = Composer(Path(__file__).resolve().parents[2] / "conf")
NEVER_PRINTED = {
    ("LG-FedAvg", "Res34-HtC4"),
    ("LG-FedAvg", "HtFE8-HtC4"),
    ("FedGen", "Res34-HtC4"),
    ("FedGen", "HtFE8-HtC4"),
}
"""Methods that need equal heads, with groups that have none; dashes in the paper."""


@pytest.mark.parametrize(("name", "tier"), [("saf-t8", "full"), ("proc-t4", "small"), ("tgp-k8", "smoke")])
def test_a_few_tables(name, tier):
    check(name, tier)


@pytest.mark.slow
@pytest.mark.parametrize("tier", ["full", "small", "smoke"])
@pytest.mark.parametrize("name", table_definitions())
def test_all_tables(name, tier):
    check(name, tier)


def as_recorded(run):
    return RecordedRun(run.folder, run.config, run.choices, {}, [], [], None, (*run.frame, *run.own))


def check(name, tier):
    table = table_definitions()[name]
    planned = runs_of(table.target, tier, [], None, COMPOSER)
    settings = {run.folder: settings_of(run.config, run.choices) for run in planned}
    values = {run.folder: values_of(run.config) for run in planned}
    recorded = {run.folder: as_recorded(run) for run in planned}
    placed, of_column = set(), {}
    for row, column in itertools.product(table.rows, table.columns):
        labels = table.labels(row, column)
        required = table.requirement(labels, tier)
        found = [folder for folder, of_run in settings.items() if satisfies(of_run, required)]
        if not found and tier != "full":
            found = [folder for folder, of_run in settings.items() if satisfies(of_run, on_stand_in(required))]
        placed |= set(found)
        if (labels["method"], labels["model_group"]) not in NEVER_PRINTED:
            assert found, labels
        assert all(values[folder] == values[found[0]] for folder in found), labels
        of_column.setdefault(str(column), []).extend((recorded[folder], required) for folder in found)
        assert not any(added_words(recorded[folder], required) for folder in found if tier == "full"), labels
    assert placed == settings.keys()
    assert not any(differences(runs) for runs in of_column.values()), "rows of a column can be compared"
