"""Every run that a sweep of a table plans has a place in that table, and every cell has its seeds."""

import itertools

import pytest

from fedsaf.reproduction.agreement import added_words, differences
from fedsaf.reproduction.selection import on_stand_in, satisfies, table_definitions
from tests.reproduction.planned import planned

NEVER_PRINTED = {
    ("LG-FedAvg", "Res34-HtC4"),
    ("LG-FedAvg", "HtFE8-HtC4"),
    ("FedGen", "Res34-HtC4"),
    ("FedGen", "HtFE8-HtC4"),
}
"""Methods that need equal heads, with groups that have none; dashes in the paper."""


@pytest.mark.parametrize(("name", "scale"), [("saf-t8", "full"), ("proc-t4", "small"), ("tgp-k8", "smoke")])
def test_a_few_tables(name, scale):
    check(name, scale)


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["full", "small", "smoke"])
@pytest.mark.parametrize("name", table_definitions())
def test_all_tables(name, scale):
    check(name, scale)


def check(name, scale):
    table = table_definitions()[name]
    runs = {run.folder: run for run in planned(table.target, scale)}
    placed, of_column = set(), {}
    for row, column in itertools.product(table.rows, table.columns):
        labels = table.labels(row, column)
        required = table.requirement(labels, scale)
        found = [run for run in runs.values() if satisfies(run.settings, required)]
        if not found and scale != "full":
            found = [run for run in runs.values() if satisfies(run.settings, on_stand_in(required))]
        placed |= {run.folder for run in found}
        if (labels["method"], labels["model_group"]) not in NEVER_PRINTED:
            assert found, labels
        assert all(run.values == found[0].values for run in found), labels
        of_column.setdefault(str(column), []).extend((run, required) for run in found)
        assert not any(added_words(run, required) for run in found if scale == "full"), labels
    assert placed == runs.keys()
    assert not any(differences(runs) for runs in of_column.values()), "rows of a column can be compared"
