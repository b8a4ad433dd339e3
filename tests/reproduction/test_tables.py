"""Tables from made-up runs whose numbers can be followed by hand."""

import csv
import json
import shutil
from types import SimpleNamespace

import pytest

from fedsaf.reproduction.collect import collect
from fedsaf.reproduction.measures import MEASURES
from fedsaf.reproduction.render import comma_separated, latex, markdown
from fedsaf.reproduction.selection import satisfies, table_definitions
from fedsaf.reproduction.tables import fill
from tests.reproduction.recorded import record_run


def filled(root, name="saf-t3", scale="full"):
    return fill(table_definitions()[name], scale, *collect([root]))


def cell(table, **labels):
    (found,) = [cell for cell in table if labels.items() <= cell.labels.items()]
    return found


GCSA = {"dataset": "CIFAR-10", "partition": "Dir(0.1)", "method": "FedSAF-GCSA"}


def test_a_cell_by_hand(tmp_path):
    for seed, hits in enumerate((85, 87, 89)):
        record_run(tmp_path / f"run{seed}", hits=hits, seed=seed)
    table = filled(tmp_path)
    found = cell(table, **GCSA)
    assert (found.ours.mean, found.ours.std, found.ours.n) == pytest.approx((87.0, (8 / 3) ** 0.5, 3))
    # t(0.975, 2) = 4.302653; the standard deviation with n - 1 is 2.
    half = 4.302653 * 2 / 3**0.5
    assert found.ours.interval == pytest.approx((87 - half, 87 + half), abs=1e-5)
    assert found.paper.text == "88.03 ± 0.13"
    assert found.difference == pytest.approx(-1.03)
    assert found.runs == ["run0", "run1", "run2"]
    assert table.num_filled == 1
    others = [other for other in table if other is not found]
    assert all(other.ours is None and other.paper and not other.problems for other in others)


def test_a_run_serves_every_table_in_which_its_cell_stands(tmp_path):
    record_run(tmp_path / "run", hits=70)
    filled_tables = [name for name in table_definitions() if filled(tmp_path, name).num_filled]
    assert filled_tables == ["saf-t1", "saf-t3", "saf-t8"]
    assert cell(filled(tmp_path, "saf-t8"), dataset="CIFAR-10", setting="IV: (lambda, gamma)").ours.mean == 70


@pytest.mark.parametrize(
    "change",
    [
        {"scale": "small"},
        {"scale": None},
        {"stand_in_for": "cifar10"},
        {"choices": {"paper": "fedtgp"}},
        {"rounds": 30},
        {"num_clients": 10},
        {"batch_size": 10},
        {"partition": {"alpha": 0.3}},
        {"alignment": {"proto_weight": 10.0}},
        {"choices": {"dataset": "cifar100", "model_group": "htfe8"}},
        {"choices": {"prototype": "trainable"}},
    ],
    ids=str,
)
def test_a_run_under_another_protocol_fills_no_cell_of_the_full_scale(tmp_path, change):
    record_run(tmp_path / "run", **change)
    table = filled(tmp_path)
    assert table.num_filled == 0
    assert not any(found.problems for found in table)


def test_scales_are_never_mixed_and_only_full_is_compared(tmp_path):
    record_run(tmp_path / "full", hits=80)
    record_run(tmp_path / "small", hits=50, scale="small", num_clients=8)
    small = cell(filled(tmp_path, scale="small"), **GCSA)
    assert (small.ours.mean, small.ours.n, small.difference) == (50, 1, None)
    assert small.ours.interval is None
    assert small.paper is not None
    assert cell(filled(tmp_path), **GCSA).ours.mean == 80


def test_levels_of_alignment_are_told_apart(tmp_path):
    for name, weights in (("none", (0.0, 0.0)), ("proto", (1.0, 0.0)), ("both", (1.0, 1.0))):
        proto, inst = weights
        record_run(tmp_path / name, alignment={"proto_weight": proto, "inst_weight": inst})
    table = filled(tmp_path, "saf-t8")
    runs = {found.labels["setting"]: found.runs for found in table if found.labels["dataset"] == "CIFAR-10"}
    assert list(runs.values()) == [["none"], ["proto"], [], ["both"]]
    assert cell(filled(tmp_path), **GCSA).runs == ["both"]


def test_each_method_by_its_own_rule_where_the_paper_does_so(tmp_path):
    protocol = {"batch_size": 10, "local_epochs": 1, "rounds": 2000}
    choices = {"paper": "fedtgp", "model_group": "htfe8", "method": "fedproto", "alignment": "mse_instance"}
    record_run(tmp_path / "a", 80, 60, "nearest_prototype", choices, **protocol)
    record_run(tmp_path / "b", 70, None, "classifier", {**choices, "method": "fml"}, **protocol)
    table = filled(tmp_path, "tgp-k6")
    labels = {"dataset": "CIFAR-10", "partition": "Dir(0.1)"}
    assert cell(table, method="FedProto", **labels).ours.mean == 60
    assert cell(table, method="FML", **labels).ours.mean == 70
    assert table.shown.startswith("classifier or nearest prototype accuracy, pooled, best round")


PROC_SPLIT = {"alpha": 0.5, "seed": 0, "generator": "numpy"}
PROC_CHOICES = {"paper": "fedproc", "scenario": "fedproc_cifar10", "partition": "dirichlet_0.5"}


def test_best_and_last_are_not_confused(tmp_path):
    shared = {"num_clients": 10, "batch_size": 64, "local_epochs": 10, "rounds": 100, "partition": PROC_SPLIT}
    choices = PROC_CHOICES | {"model_group": "moon_cnn", "method": "fedavg"}
    folder = record_run(tmp_path / "run", 60, choices=choices, **shared)
    rows = (folder / "metrics.jsonl").read_text().replace('"pooled": 0.5', '"pooled": 0.9')
    (folder / "metrics.jsonl").write_text(rows)
    summary = json.loads((folder / "summary.json").read_text())
    summary["classifier"]["best"] |= {"pooled": 0.9, "client_mean": 0.5, "round": 1}
    (folder / "summary.json").write_text(json.dumps(summary))
    assert cell(filled(tmp_path, "proc-t2"), dataset="CIFAR-10", method="FedAvg").ours.mean == 60
    assert filled(tmp_path, "proc-t2").shown == "classifier accuracy, pooled, last round"


def test_costs_margins_and_time_by_hand(tmp_path):
    choices = {"dataset": "cifar100", "model_group": "htfe4", "method": "fml"}
    record_run(tmp_path / "run", choices=choices, rounds=3)
    row = [found.ours.mean for found in filled(tmp_path, "saf-t9") if found.labels["method"] == "FML"]
    # Medians over two rounds: 1 and 2 MiB, 3 MiB, 0.5 s, 8 and 16 s.
    assert row == [1.5, 3.0, 0.5, 12.0]
    protocol = {"batch_size": 10, "local_epochs": 1, "rounds": 3}
    choices |= {"paper": "fedtgp", "model_group": "htfe8", "method": "fedproto", "alignment": "mse_instance"}
    record_run(tmp_path / "traffic", choices=choices, **protocol)
    protocol |= {"rounds": 2000}
    record_run(tmp_path / "margins", choices=choices, diagnostics={"global_margin_mean": 0.25}, **protocol)
    assert cell(filled(tmp_path, "tgp-k8"), method="FedProto").ours.mean == pytest.approx(4.5 * 2**20 / 4e6)
    margins = {c.labels["setting"]: c.ours.mean for c in filled(tmp_path, "tgp-k5") if c.labels["method"] == "FedProto"}
    assert margins == {"global": 0.25, "best client": 2.0}
    choices = PROC_CHOICES | {"model_group": "homogeneous", "method": "moon"}
    changes = {"num_clients": 10, "batch_size": 64, "local_epochs": 10, "rounds": 2, "partition": PROC_SPLIT}
    record_run(tmp_path / "moon", choices=choices, **changes)
    assert cell(filled(tmp_path, "proc-t5"), dataset="CIFAR-10", method="MOON").ours.mean == 15.0


def test_domains_stand_in_columns_by_name(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    partition = {"num_clients": 2, "client_groups": ["art_painting", "photo"], "rule": "ByDomain"}
    (folder / "partition.json").write_text(json.dumps(partition))
    choices = {"dataset": "pacs", "partition": "by_domain"}
    record_run(folder, 60, choices=choices, num_clients=4, partition={"clients_per_domain": 1})
    table = [c for c in filled(tmp_path, "saf-t4") if c.labels["method"] == "FedSAF-GCSA"]
    row = {c.labels["setting"]: c for c in table if c.labels["dataset"] == "PACS"}
    # Client 0 has 60 hits of 100, client 1 has 55.
    assert [row[name].ours.mean for name in ("Art", "Photo", "Avg")] == pytest.approx([60, 55, 57.5])
    assert row["Sketch"].ours is None
    assert row["Sketch"].problems == ["run: has no number of this kind"]


def test_a_stand_in_is_taken_only_in_reduced_scales_and_named(tmp_path):
    record_run(tmp_path / "run", 40, scale="small", choices={"dataset": "digits"}, stand_in_for="cifar10")
    table = filled(tmp_path, scale="small")
    assert table.num_filled == 1
    found = cell(table, **GCSA)
    assert (found.ours.mean, found.stand_in) == (40, "digits")
    assert "40.00 ± 0.00 (n=1)<br>on digits" in markdown(table)
    record_run(tmp_path / "real", 70, scale="small")
    found = cell(filled(tmp_path, scale="small"), **GCSA)
    assert (found.ours.mean, found.stand_in) == (70, "")
    record_run(tmp_path / "stranger", 40, choices={"dataset": "digits"}, stand_in_for="cifar10")
    record_run(tmp_path / "own", 40, scale="small", choices={"dataset": "digits"})
    assert filled(tmp_path).num_filled == 0
    assert filled(tmp_path, scale="small").num_filled == 1


def test_two_different_experiments_in_one_cell_give_no_number(tmp_path):
    record_run(tmp_path / "one", 60, scale="small", seed=0)
    record_run(tmp_path / "other", 70, scale="small", seed=1, optimizer={"lr": 0.1})
    found = cell(filled(tmp_path, scale="small"), **GCSA)
    assert found.ours is None
    assert found.problems == ["one and other are different experiments: optimizer.lr is 0.01 and 0.1"]


def test_two_versions_of_the_configuration_in_one_cell_give_no_number(tmp_path):
    record_run(tmp_path / "new", seed=0, a_new_key=1)
    record_run(tmp_path / "old", seed=1)
    found = cell(filled(tmp_path), **GCSA)
    assert found.ours is None
    assert found.problems == ["new and old are different experiments: a_new_key is 1 and absent"]


def test_seeds_may_come_from_sweeps_of_different_tables(tmp_path):
    """What was chosen by name is compared by its values; how often was diagnosed changes no result."""
    record_run(tmp_path / "a", 60, seed=0, choices={"experiment": "table_1"})
    record_run(tmp_path / "b", 70, seed=1, choices={"experiment": "table_3", "partition": "dirichlet_public"})
    record_run(tmp_path / "c", 70, seed=1, diagnostics_every=25)
    found = cell(filled(tmp_path), **GCSA)
    assert (found.ours.mean, found.ours.n, found.runs, found.problems) == (65, 2, ["a", "b"], [])


def test_the_same_run_twice_counts_once_unless_it_contradicts_itself(tmp_path):
    record_run(tmp_path / "a" / "run", 60)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    both = collect([tmp_path / "a", tmp_path / "b"])
    assert cell(fill(table_definitions()["saf-t3"], "full", *both), **GCSA).ours.n == 1
    shutil.rmtree(tmp_path / "b")
    record_run(tmp_path / "b" / "run", 61)
    both = collect([tmp_path / "a", tmp_path / "b"])
    found = cell(fill(table_definitions()["saf-t3"], "full", *both), **GCSA)
    assert found.ours is None
    assert "have seed 0 and one configuration, but different results" in found.problems[0]


def test_what_does_not_count_is_named_in_its_cell(tmp_path):
    record_run(tmp_path / "ok", 60, seed=0)
    (record_run(tmp_path / "cut", 60, seed=1) / "summary.json").unlink()
    record_run(tmp_path / "failed", 60, seed=2, finish=False)
    table = filled(tmp_path)
    found = cell(table, **GCSA)
    assert (found.ours.n, found.notes) == (1, ["failed: failed: ValueError: no"])
    assert found.problems == ["cut: summary.json is missing: a part of the folder was deleted"]
    assert "**does not count**: cut: summary.json is missing" in markdown(table)
    assert sum(bool(other.problems or other.notes) for other in table) == 1


def test_a_rule_that_was_not_evaluated_is_said(tmp_path):
    folder = record_run(tmp_path / "run", 60)
    rows = (folder / "metrics.jsonl").read_text().replace('"classifier"', '"other"')
    (folder / "metrics.jsonl").write_text(rows)
    summary = json.loads((folder / "summary.json").read_text())
    summary |= {"other": summary["classifier"], "classifier": None}
    (folder / "summary.json").write_text(json.dumps(summary))
    found = cell(filled(tmp_path), **GCSA)
    assert found.ours is None
    assert found.problems[0].startswith("run: has no number")


def ranked(tmp_path, *hits):
    names = ("fedsaf_mse", "fedsaf_cosine", "fedsaf_gcsa", "fedsaf_rcsa")
    for name, number in zip(names, hits, strict=True):
        if number is not None:
            record_run(tmp_path / name, number, choices={"method": name})
    return filled(tmp_path)


def test_the_best_three_of_a_column_are_marked(tmp_path):
    table = ranked(tmp_path, 50, 70, 70, 60)
    assert [row[0].rank for row in table.cells] == [None, 1, 1, 3]
    assert "70.00 ± 0.00¹ (n=1)<br>paper 88.03 ± 0.13<br>difference −18.03" in markdown(table)
    text = latex(table)
    assert r"\textbf{70.00 $\pm$ 0.00} (n=1)" in text
    assert r"\textit{60.00 $\pm$ 0.00}" in text
    assert "95 \\% interval" in text
    assert text.count(r" \\" + "\n") == 5


def test_one_number_alone_is_not_the_best(tmp_path):
    assert [row[0].rank for row in ranked(tmp_path, None, None, 70, None).cells] == [None] * 4


def test_numbers_on_a_stand_in_are_not_ranked_among_the_others(tmp_path):
    record_run(tmp_path / "gcsa", 60, scale="small")
    record_run(tmp_path / "rcsa", 50, scale="small", choices={"method": "fedsaf_rcsa"})
    choices = {"dataset": "digits", "method": "fedsaf_mse"}
    record_run(tmp_path / "mse", 99, scale="small", choices=choices, stand_in_for="cifar10")
    assert cell(filled(tmp_path, scale="small"), **(GCSA | {"method": "FedSAF-MSE"})).ours.mean == 99
    assert [row[0].rank for row in filled(tmp_path, scale="small").cells] == [None, None, 1, 2]


def test_what_comes_after_a_hundred_rounds_without_a_new_best_does_not_count_for_fedtgp():
    rounds = {0: 0.99, 5: 0.3, 50: 0.5, 100: 0.4, 145: 0.5, 150: 0.45, 155: 0.9}
    rows = [{"round": number, "nearest_prototype": {"pooled": value}} for number, value in rounds.items()]
    rows.insert(3, {"round": 60, "nearest_prototype": None})
    run = SimpleNamespace(rows=rows, summary={"predictor": "nearest_prototype"})
    best = MEASURES["best_patient"].value
    assert best(run, "reported", "") == 50.0
    assert best(SimpleNamespace(rows=rows[:4], summary=run.summary), "reported", "") == 50.0
    assert best(run, "classifier", "") is None


def test_the_csv_holds_every_cell_unrounded(tmp_path):
    for seed, hits in enumerate((60, 61, 63)):
        record_run(tmp_path / f"run{seed}", hits, seed=seed)
    rows = list(csv.DictReader(comma_separated(filled(tmp_path)).splitlines()))
    assert len(rows) == 24
    (row,) = [row for row in rows if row["n"] != "0"]
    assert float(row["mean"]) == pytest.approx(184 / 3, abs=1e-12)
    assert (row["method"], row["scale"], row["paper_mean"], row["unit"]) == ("FedSAF-GCSA", "full", "88.03", "%")
    assert float(row["difference"]) == pytest.approx(184 / 3 - 88.03)
    assert row["runs"] == "run0; run1; run2"


def test_the_heading_says_which_accuracy_and_which_scale(tmp_path):
    text = markdown(ranked(tmp_path, None, None, 70, None))
    assert "Scale full. Shown: classifier accuracy, pooled, best round on the test parts in %" in text
    assert "| FedSAF-RCSA | paper 88.06 ± 0.24 |" in text


def test_requirements():
    assert not satisfies({}, {"scale": "full"})
    assert not satisfies({"rule": "mean"}, {"rule": ["trainable", "hypersphere"]})
    assert not satisfies({"network": 1}, {"network": True})
    assert satisfies({"rounds": 300.0}, {"rounds": 300})
