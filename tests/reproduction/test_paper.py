"""The printed numbers, and that every one of them has a place in a table."""

import itertools
from collections import Counter

import pytest
from scipy import stats

from fedsaf.reproduction.paper import AXES, paper_values, printed
from fedsaf.reproduction.selection import SCALES, table_definitions
from fedsaf.tracking.intervals import spread_of

COUNTS = {
    ("FedSAF", "I"): 108,
    ("FedSAF", "II"): 72,
    ("FedSAF", "III"): 24,
    ("FedSAF", "IV"): 48,
    ("FedSAF", "V"): 12,
    ("FedSAF", "VI"): 12,
    ("FedSAF", "VII"): 32,
    ("FedSAF", "VIII"): 8,
    ("FedSAF", "IX"): 48,
    ("FedTGP", "Knowl 6"): 56,
    ("FedTGP", "Knowl 7"): 52,
    ("FedTGP", "Knowl 8"): 7,
    ("FedTGP", "Knowl 9"): 15,
    ("FedTGP", "Knowl 10"): 8,
    ("FedProc", "tab. 2"): 6,
    ("FedProc", "tab. 5"): 9,
}


def cells(table):
    return [table.labels(row, column) for row, column in itertools.product(table.rows, table.columns)]


def test_every_table_is_complete():
    assert Counter((value.paper, value.table) for value in paper_values()) == COUNTS
    assert sum(COUNTS.values()) == len(paper_values()) == 517


def test_numbers_are_numbers_in_a_known_unit():
    for value in paper_values():
        assert float(value.mean) >= 0
        assert not value.std or float(value.std) >= 0
        assert value.unit in ("%", "s", "MiB", "10^6 numbers")
        if value.unit == "%":
            assert float(value.mean) < 100


def test_a_few_numbers_as_printed():
    labels = dict(zip(AXES, ("CIFAR-100", "Dir(0.5)", "HtFE9", "FedSAF-RCSA", ""), strict=True))
    assert printed("FedSAF", "III", labels).text == "26.97 ± 0.24"
    assert printed("FedSAF", "I", labels).text == "26.97 ± 0.24"
    assert printed("FedSAF", "III", {**labels, "dataset": "PACS"}) is None
    ours = {**labels, "partition": "Dir(0.1)", "model_group": "HtFE4", "method": "FML", "setting": "upload"}
    assert (printed("FedSAF", "IX", ours).mean, printed("FedSAF", "IX", ours).unit) == ("70.54", "MiB")


@pytest.mark.parametrize("key", COUNTS, ids=" ".join)
def test_every_printed_number_stands_in_one_cell(key):
    (table,) = [table for table in table_definitions().values() if (table.paper, table.table) == key]
    places = [tuple(labels.items()) for labels in cells(table)]
    assert len(set(places)) == len(places)
    assert {tuple(value.labels.items()) for value in paper_values() if (value.paper, value.table) == key} <= set(places)


def test_shared_cells_of_two_tables_ask_for_the_same_runs():
    """Table I and Table III, Table II and Table VII: two losses of one, methods of the other."""
    tables = table_definitions()
    for one, other in (("saf-t1", "saf-t3"), ("saf-t2", "saf-t7")):
        shared = [labels for labels in cells(tables[one]) if labels in cells(tables[other])]
        assert shared
        for labels, scale in itertools.product(shared, SCALES):
            assert tables[one].requirement(labels, scale) == tables[other].requirement(labels, scale)


@pytest.mark.parametrize("table", table_definitions().values(), ids=lambda table: table.name)
def test_no_two_cells_of_a_table_ask_for_the_same_full_run(table):
    """Except for parts of one run, such as domains."""
    asked = [table.requirement(labels, "full") for labels in cells(table)]
    parts = len({labels["setting"] for labels in cells(table)}) if table.measure.parts else 1
    assert all(asked.count(one) <= parts for one in asked)


def test_intervals_by_an_independent_route():
    values = [57.3, 58.1, 57.9]
    spread = spread_of(values)
    low, high = stats.t.interval(0.95, 2, loc=sum(values) / 3, scale=stats.sem(values))
    assert spread.interval == pytest.approx((low, high))
    # Two values: t(0.975, 1) = 12.7062, the standard error of (1, 3) is 1.
    assert spread_of([1.0, 3.0]).interval == pytest.approx((2 - 12.7062, 2 + 12.7062), abs=1e-4)
    assert spread_of([1.0, 3.0]).std == 1.0


def test_one_value_has_no_interval_and_none_is_refused():
    assert (spread_of([4.0]).interval, spread_of([4.0]).std, spread_of([4.0]).n) == (None, 0.0, 1)
    assert spread_of([4.0, 4.0]).interval == (4.0, 4.0)
    with pytest.raises(ValueError, match="values: got none"):
        spread_of([])
