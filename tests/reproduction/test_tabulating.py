"""Tables from made-up runs whose numbers can be followed by hand."""

import csv
import json
import shutil
from dataclasses import replace

import pandas as pd
import pytest

from fedsaf.core.config import ConfigError
from fedsaf.reproduction.experiments import default_composer, displays
from fedsaf.reproduction.frame import Run, collect
from fedsaf.reproduction.matching import Matcher
from fedsaf.reproduction.numbers import NUMBERS
from fedsaf.reproduction.rendering import comma_separated, latex, markdown
from fedsaf.reproduction.tabulating import ROLES, fill
from tests.reproduction.recorded import record_cell, record_run

TABLES = displays("table")
GCSA = ("FedSAF-GCSA", "CIFAR-10, Dir(0.1)")
LOSSES = ("FedSAF-MSE", "FedSAF-Cosine", "FedSAF-GCSA", "FedSAF-RCSA")


@pytest.fixture
def record(tmp_path):
    """Record a run of a cell of a table, as its sweep would make it."""

    def run(name, table="saf-t3", row=GCSA[0], column=GCSA[1], hits=60, scale="full", **options):
        cells = {
            (place.name("rows"), place.name("columns")): place.cell for place in TABLES[table].places(ROLES, scale)
        }
        return record_cell(tmp_path / name, cells[row, column], hits, **options)

    return run


@pytest.fixture
def filled(tmp_path):
    """Fill a table from what was recorded."""

    def run(table="saf-t3", scale="full", words=(), *roots):
        display = TABLES[table] if isinstance(table, str) else table
        return fill(display, scale, Matcher(collect(roots or [tmp_path])), words)

    return run


def cell(table, row=GCSA[0], column=GCSA[1]):
    return table.cells.set_index([*ROLES]).loc[(row, column)]


def names(cell):
    return [run.folder.name for run in cell.members]


def test_a_cell_by_hand(record, filled):
    for seed, hits in enumerate((85, 87, 89)):
        record(f"run{seed}", hits=hits, seed=seed)
    table = filled()
    found = cell(table)
    assert [found["mean"], found["std"], found["n"]] == pytest.approx([87.0, (8 / 3) ** 0.5, 3])
    half = 4.302653 * 2 / 3**0.5  # t(0.975, 2), and the standard deviation with n - 1 is 2
    assert [found.low, found.high] == pytest.approx([87 - half, 87 + half], abs=1e-5)
    assert found.paper.text == "88.03 ± 0.13"
    assert found.difference == pytest.approx(-1.03)
    assert names(found) == ["run0", "run1", "run2"]
    others = table.cells[table.cells["n"] == 0]
    assert (table.num_filled, len(others), table.problems) == (1, 23, [])
    assert others["mean"].isna().all()
    assert all(others["paper"])


def test_one_seed_tells_nothing_about_its_spread(record, filled):
    record("run", hits=60)
    found = cell(filled())
    assert (found["mean"], found["n"]) == (60, 1)
    assert found[["std", "low", "high"]].isna().all()
    assert "| 60.00 (n=1)<br>paper 88.03 ± 0.13<br>difference −28.03 |" in markdown(filled())


def test_a_run_serves_every_table_in_which_its_cell_stands(record, filled):
    record("run", hits=70)
    assert [name for name in ("saf-t1", "saf-t3", "saf-t7", "saf-t8", "saf-v") if filled(name).num_filled] == [
        "saf-t1",
        "saf-t3",
        "saf-t8",
    ]
    assert cell(filled("saf-t8"), "IV: (lambda, gamma)", "CIFAR-10")["mean"] == 70


@pytest.mark.parametrize(
    "changes",
    [
        {"scale": "small"},
        {"scale": None},
        {"stand_in_for": "cifar10"},
        {"rounds": 30},
        {"num_clients": 10},
        {"fabric": {"precision": "bf16-mixed"}},
    ],
    ids=str,
)
def test_another_experiment_fills_no_cell(record, filled, changes):
    record("run", changes=changes)
    table = filled()
    assert (table.num_filled, table.problems) == (0, [])


def test_what_changes_no_number_leaves_a_run_in(record, filled):
    record("a", seed=0, changes={"eval_batch_size": 17, "logger": None, "results_root": "there"})
    record("b", seed=1, hits=70, changes={"diagnostics_every": 1})
    record("c", seed=1, hits=70)  # the same run, diagnosed less often
    found = cell(filled())
    assert (found["mean"], names(found), found.problems) == (65, ["a", "b"], [])


def test_scales_are_never_mixed_and_only_full_is_compared(record, filled):
    record("full", hits=80)
    record("small", hits=50, scale="small")
    small = cell(filled(scale="small"))
    assert (small["mean"], small["n"], small.paper.mean) == (50, 1, "88.03")
    assert pd.isna(small.difference)
    assert cell(filled())["mean"] == 80


def test_levels_of_alignment_are_told_apart(record, filled):
    rows = ("I: (0, 0)", "II: (lambda, 0)", "IV: (lambda, gamma)")
    for name, row in zip("abc", rows, strict=True):
        record(name, "saf-t8", row, "CIFAR-10")
    table = filled("saf-t8")
    column = table.cells[table.cells["columns"] == "CIFAR-10"]
    assert [names(found) for _, found in column.iterrows()] == [["a"], ["b"], [], ["c"]]
    assert names(cell(filled())) == ["c"]


def test_each_method_by_its_own_rule_where_the_paper_does_so(record, filled):
    column = "CIFAR-10, Dir(0.1)"
    record("a", "tgp-k6", "FedProto", column, 80, prototype_hits=60, predictor="nearest_prototype")
    record("b", "tgp-k6", "FML", column, 70)
    table = filled("tgp-k6")
    assert (cell(table, "FedProto", column)["mean"], cell(table, "FML", column)["mean"]) == (60, 70)
    assert table.shown.startswith("classifier or nearest prototype accuracy, pooled, best round")


def test_best_and_last_are_not_confused(record, filled):
    folder = record("run", "proc-t2", "FedAvg", "CIFAR-10")
    rows = (folder / "metrics.jsonl").read_text().replace('"pooled": 0.5', '"pooled": 0.9')
    (folder / "metrics.jsonl").write_text(rows)
    summary = json.loads((folder / "summary.json").read_text())
    summary["classifier"]["best"] |= {"pooled": 0.9, "client_mean": 0.5, "round": 1}
    (folder / "summary.json").write_text(json.dumps(summary))
    assert cell(filled("proc-t2"), "FedAvg", "CIFAR-10")["mean"] == 60
    assert filled("proc-t2").shown == "classifier accuracy, pooled, last round"
    ((run,), _) = (lambda records: (records.runs, records.aside))(collect([folder.parent]))
    assert NUMBERS["best"].value(run, "classifier", "") == 90


def test_costs_margins_and_time_by_hand(record, filled):
    record("run", "saf-t9", "FML", "upload")
    row = filled("saf-t9").cells.query("rows == 'FML'")["mean"]
    assert row.tolist() == [1.5, 3.0, 0.5, 12.0]  # medians over three rounds: MiB up and down, seconds
    record("traffic", "tgp-k8", "FedProto", "")
    assert cell(filled("tgp-k8"), "FedProto", "all")["mean"] == pytest.approx(4.5 * 2**20 / 4e6)
    record("margins", "tgp-k5", "FedProto", "global", diagnostics={"global_margin_mean": 0.25})
    margins = filled("tgp-k5").cells.query("rows == 'FedProto'").set_index("columns")["mean"]
    assert margins.to_dict() == {"global": 0.25, "best client": 2.0}
    record("moon", "proc-t5", "MOON", "CIFAR-10")
    assert cell(filled("proc-t5"), "MOON", "CIFAR-10")["mean"] == 15.0


def test_domains_stand_in_columns_by_name(record, filled, tmp_path):
    partition = {"num_clients": 2, "client_groups": ["art_painting", "photo"], "rule": "ByDomain"}
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "partition.json").write_text(json.dumps(partition))
    record("run", "saf-t4", "FedSAF-GCSA", "PACS, Art", 60)
    row = filled("saf-t4").cells.query("rows == 'FedSAF-GCSA'").set_index("setting")
    # Client 0 has 60 hits of 100, client 1 has 55.
    assert row["mean"].iloc[:5].tolist() == pytest.approx([60, float("nan"), 55, float("nan"), 57.5], nan_ok=True)
    assert row["problems"]["Cartoon"] == ["run: has no number of this kind"]


def test_a_stand_in_is_taken_only_below_full_and_named(record, filled):
    record("run", hits=40, scale="small", stand_in=True)
    found = cell(filled(scale="small"))
    assert (found["mean"], found.stand_in) == (40, "digits")
    assert "| 40.00 (n=1)<br>on digits<br>paper 88.03 ± 0.13 |" in markdown(filled(scale="small"))
    record("real", hits=70, scale="small")
    found = cell(filled(scale="small"))
    assert (found["mean"], found.stand_in) == (70, "")
    assert filled().num_filled == 0


def test_the_same_run_twice_counts_once_unless_it_contradicts_itself(record, filled, tmp_path):
    record("a/run")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    roots = (tmp_path / "a", tmp_path / "b")
    assert cell(filled("saf-t3", "full", (), *roots))["n"] == 1
    shutil.rmtree(tmp_path / "b")
    record("b/run", hits=61)
    found = cell(filled("saf-t3", "full", (), *roots))
    assert found["n"] == 0
    assert "have seed 0 and one configuration, but different results" in found.problems[0]


def test_what_does_not_count_is_named_in_its_cell(record, filled):
    record("ok", seed=0)
    (record("cut", seed=1) / "summary.json").unlink()
    record("failed", seed=2, finish=False)
    table = filled()
    found = cell(table)
    assert (found["n"], found.notes) == (1, ["failed: failed: ValueError: no"])
    assert found.problems == table.problems == ["cut: summary.json is missing: a part of the folder was deleted"]
    where = "CIFAR-10, Dir(0.1), HtFE9, FedSAF-GCSA"
    assert f"- {where}: **does not count**: cut: summary.json is missing" in markdown(table)
    assert (table.cells["problems"].str.len() + table.cells["notes"].str.len()).sum() == 2


def test_a_rule_that_was_not_evaluated_is_said(record, filled):
    folder = record("run")
    rows = (folder / "metrics.jsonl").read_text().replace('"classifier"', '"other"')
    (folder / "metrics.jsonl").write_text(rows)
    summary = json.loads((folder / "summary.json").read_text())
    summary |= {"other": summary["classifier"], "classifier": None}
    (folder / "summary.json").write_text(json.dumps(summary))
    assert filled().problems == ["run: has no number of this kind"]


def test_a_client_that_failed_and_versions_of_the_code_are_noted(record, filled):
    folder = record("run")
    metrics, summary = folder / "metrics.jsonl", folder / "summary.json"
    metrics.write_text(metrics.read_text().replace('"round": 2', '"failed_clients": [1], "round": 2', 1))
    summary.write_text(summary.read_text().replace('"num_failed_clients": 0', '"num_failed_clients": 1'))
    for name, seed in (("a", 1), ("b", 2)):
        (record(name, seed=seed) / "environment.json").write_text(json.dumps({"git": {"commit": name}}))
    assert cell(filled()).notes == [
        "run: a client failed and was left out, 1 times in all",
        "runs of 2 versions of the code",
    ]


def ranks(table):
    return [None if pd.isna(rank) else int(rank) for rank in table.cells[table.cells["columns"] == GCSA[1]]["rank"]]


def test_the_best_three_of_a_column_are_marked(record, filled):
    for row, hits in zip(LOSSES, (50, 70, 70, 60), strict=True):
        record(row, row=row, hits=hits)
    table = filled()
    assert ranks(table) == [None, 1, 1, 3]
    assert "70.00¹ (n=1)<br>paper 88.03 ± 0.13<br>difference −18.03" in markdown(table)
    text = latex(table)
    assert r"\textbf{70.00} (n=1)" in text
    assert r"\textit{60.00} (n=1)" in text
    assert r"\shortstack{CIFAR-10 \\ Dir(0.1)}" in text
    assert "95 \\% interval" in text
    assert text.count(r" \\" + "\n") == 5


def test_one_number_alone_is_not_the_best(record, filled):
    record("run")
    assert ranks(filled()) == [None] * 4


def test_numbers_on_a_stand_in_are_not_ranked_among_the_others(record, filled):
    record("gcsa", hits=60, scale="small")
    record("rcsa", row="FedSAF-RCSA", hits=50, scale="small")
    record("mse", row="FedSAF-MSE", hits=99, scale="small", stand_in=True)
    table = filled(scale="small")
    assert cell(table, "FedSAF-MSE")["mean"] == 99
    assert ranks(table) == [None, None, 1, 2]


def test_rows_that_differ_in_what_the_table_does_not_name_are_not_ranked(record, filled):
    for row in ("FedAvg", "SOLO"):
        record(row, "proc-t2", row, "CIFAR-10")
    table = filled("proc-t2")
    assert table.cells["rank"].notna().sum() == 2, "SOLO's rounds are named"
    silent = replace(TABLES["proc-t2"], node={k: v for k, v in TABLES["proc-t2"].node.items() if k != "differs"})
    table = filled(silent)
    assert table.cells["rank"].isna().all()
    assert cell(table, "SOLO", "CIFAR-10")["n"] == 1
    text = "and 1 more: no fair comparison: the rows of this column were run with different rounds"
    assert text in markdown(table)


def test_what_comes_after_a_hundred_rounds_without_a_new_best_does_not_count_for_fedtgp(tmp_path):
    rounds = {0: 0.99, 5: 0.3, 50: 0.5, 60: None, 100: 0.4, 145: 0.5, 150: 0.45, 155: 0.9}
    rows = [{"round": t, "nearest_prototype": {"pooled": value} if value else None} for t, value in rounds.items()]
    best = NUMBERS["best_patient"].value

    def run(rows):
        return Run(tmp_path, {}, {}, {"predictor": "nearest_prototype"}, rows, rows)

    assert best(run(rows), "reported", "") == 50.0
    assert best(run(rows[:5]), "reported", "") == 50.0
    assert best(run(rows[:1]), "reported", "") == 99.0
    assert best(run(rows), "classifier", "") is None


def test_the_csv_holds_every_cell_unrounded(record, filled):
    for seed, hits in enumerate((60, 61, 63)):
        record(f"run{seed}", hits=hits, seed=seed)
    rows = list(csv.DictReader(comma_separated(filled()).splitlines()))
    assert len(rows) == 24
    (row,) = [row for row in rows if row["n"] != "0"]
    assert float(row["mean"]) == pytest.approx(184 / 3, abs=1e-12)
    assert (row["method"], row["scale"], row["paper_mean"], row["unit"]) == ("FedSAF-GCSA", "full", "88.03", "%")
    assert float(row["difference"]) == pytest.approx(184 / 3 - 88.03)
    assert row["runs"] == "run0; run1; run2"
    assert {row["mean"] for row in rows if row["n"] == "0"} == {""}


def test_the_heading_says_which_accuracy_and_which_scale(record, filled):
    record("run")
    text = markdown(filled())
    assert "Scale full. Shown: classifier accuracy, pooled, best round on the test parts in %" in text
    assert "| FedSAF-RCSA" in text


def test_a_word_on_a_swept_key_leaves_one_of_its_values(record, filled):
    record("run")
    table = filled(words=("dataset=cifar10", "logger=none"))
    assert (len(table.cells), table.num_filled, table.words) == (12, 1, ())
    assert cell(table).paper.mean == "88.03"
    assert set(filled(words=("dataset=fashion_mnist",)).cells["dataset"]) == {"fashion_mnist"}


def test_words_that_leave_the_experiment_have_a_table_of_their_own(record, filled):
    record("run", changes={"rounds": 7})
    assert filled().num_filled == 0
    table = filled(words=("rounds=7",))
    assert cell(table)["mean"] == 60
    assert not any(table.cells["paper"])
    assert "With rounds=7, so no printed number." in markdown(table)


@pytest.mark.parametrize(
    ("table", "word", "message"),
    [
        ("saf-t6", "num_clients=5", "num_clients is what scenario=devices_50,devices_100,devices_200 is about"),
        ("proc-t2", "dataset=cifar10", "dataset is what scenario="),
        ("saf-t3", "seed=0,1", "seed=0,1 is a sweep"),
        ("saf-t3", "scale=small", "the scale is chosen by TIER="),
        ("saf-t3", "rounds", "rounds is no override"),
    ],
)
def test_words_that_contradict_what_is_swept_are_refused(filled, table, word, message):
    with pytest.raises(ConfigError, match=message):
        filled(table, "full", (word,))


def test_a_scenario_alone_may_be_changed(filled):
    table = filled("saf-t6", "full", ("scenario=devices_50", "num_clients=5"))
    assert table.words == ("num_clients=5",)
    (place, *_) = table.cells["place"]
    assert place.cell.config["num_clients"] == 5
    assert TABLES["saf-t6"].free("columns", default_composer()) >= {"scenario", "num_clients", "dataset"}


def test_nothing_recorded_makes_an_empty_table(filled, tmp_path):
    record_run(tmp_path / "stranger")
    table = filled("saf-t9", "smoke")
    assert (table.num_filled, len(table.cells)) == (0, 48)
    assert "| FedProto" in markdown(table)
    assert "FedProto" in latex(table)
    assert comma_separated(table).count("\n") == 49
