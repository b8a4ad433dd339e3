"""Every figure's numbers, read back from its CSV, against numbers made by hand."""

import csv

import pytest

from fedsaf.reproduction.collect import collect
from fedsaf.reproduction.figures.build import build, write
from fedsaf.reproduction.figures.definition import figure_definitions
from tests.reproduction.recorded import record_run

CIFAR100 = {"dataset": "cifar100"}
MSE = {"method": "fedsaf_mse", "alignment": "mse"}
TGP = {"num_clients": 20, "batch_size": 10, "local_epochs": 1, "rounds": 2000}
PROC = {"num_clients": 10, "batch_size": 64, "local_epochs": 10, "rounds": 100}
PROC["partition"] = {"alpha": 0.5, "seed": 0, "generator": "numpy"}
PROC_CHOICES = {
    "paper": "fedproc",
    "scenario": "fedproc_cifar10",
    "model_group": "moon_cnn",
    "partition": "dirichlet_0.5",
}


@pytest.fixture
def drawn(tmp_path):
    """Build and write a figure from the runs of the test; return its CSV rows and what is said about it."""

    def draw(name, table=""):
        built = build(figure_definitions()[name], "full", *collect([tmp_path]))
        write(built, tmp_path / "out")
        text = (tmp_path / "out" / f"{name}_full{table}.csv").read_text()
        return list(csv.DictReader(text.splitlines())), built.numbers

    return draw


def numbers(row, *keys):
    return tuple(round(float(row[key]), 9) for key in keys)


def test_figure_1_mean_and_range_over_seeds(drawn, tmp_path):
    for seed in (0, 1, 2):
        dimensions = [{"effective_dimension": 4.0 + seed}, {"effective_dimension": 8.0 + 2 * seed}]
        record_run(
            tmp_path / f"a{seed}",
            choices={"scenario": "hetero_local"},
            protocol={"initialisation": "independent"},
            seed=seed,
            num_clients=9,
            rounds=50,
            diagnostics=dimensions,
        )
    rows, found = drawn("saf-f1")
    assert [numbers(row, "round", "mean", "low", "high", "n") for row in rows] == [(1, 5, 4, 6, 3), (2, 10, 8, 12, 3)]
    assert {row["series"] for row in rows} == {"Hetero-Local"}
    assert found.missing == ["Homo-Local", "Homo-Shared"]


def test_figure_3_distance_to_the_best_of_each_column(drawn, tmp_path):
    for alpha, best in ((0.1, 70), (0.5, 60), (1.0, 50)):
        partition = {"alpha": alpha}
        record_run(tmp_path / f"g{alpha}", best, partition=partition)
        record_run(tmp_path / f"m{alpha}", best - int(10 * alpha), choices=MSE, partition=partition)
    rows, found = drawn("saf-f3")
    assert {row["panel"] for row in rows} == {"Tables III, IV, V, VI, VII"}
    gaps = {(row["spoke"], row["series"]): float(row["gap"]) for row in rows}
    assert gaps == pytest.approx(
        {
            (f"III: CIFAR-10, Dir({alpha})", series): gap
            for alpha, below in ((0.1, -1), (0.5, -5), (1.0, -10))
            for series, gap in (("FedSAF-GCSA", 0), ("FedSAF-MSE", below))
        }
    )
    assert "Tables I, II (fewer than 3 columns have two methods)" in found.missing
    assert "III: CIFAR-10, Dir(0.1), FedSAF-RCSA" in found.missing
    assert "III: CIFAR-100, Dir(0.1)" in found.missing
    assert not any("Art" in name for name in found.missing), "of accuracies per domain only the mean is a spoke"


def test_figure_5_gains_by_seed_over_both_weights_zero(drawn, tmp_path):
    for seed, origin, other in ((0, 50, 53), (1, 60, 61)):
        for name, hits, weights in (("zero", origin, (0, 0)), ("some", other, (0.1, 10))):
            alignment = dict(zip(("proto_weight", "inst_weight"), weights, strict=True))
            record_run(tmp_path / f"{name}{seed}", hits, choices=CIFAR100, seed=seed, alignment=alignment)
    record_run(tmp_path / "alone", choices=CIFAR100 | MSE, alignment={"proto_weight": 1, "inst_weight": 1})
    rows, found = drawn("saf-f5")
    by_weights = {numbers(row, "lambda", "gamma"): row for row in rows}
    assert by_weights.keys() == {(0, 0), (0.1, 10)}
    assert numbers(by_weights[0, 0], "mean", "accuracy") == (0, 55)
    assert numbers(by_weights[0.1, 10], "mean", "low", "high", "n") == pytest.approx((2, 1, 3, 2))
    assert {row["series"] + row["panel"] for row in rows} == {"FedSAF-GCSA"}
    assert "FedSAF-MSE: no run with both weights 0, so no gain is known" in found.problems
    assert "FedSAF-GCSA, lambda=1, gamma=1" in found.missing


def test_figure_5_compares_no_seeds_that_only_one_side_has(drawn, tmp_path):
    zero = {"proto_weight": 0, "inst_weight": 0}
    record_run(tmp_path / "zero", 50, choices=CIFAR100, alignment=zero)
    record_run(tmp_path / "one", 70, choices=CIFAR100, seed=1)
    rows, found = drawn("saf-f5")
    assert len(rows) == 1
    assert "FedSAF-GCSA, lambda=1, gamma=1 (no run with both weights 0 on the same data and seed)" in found.missing


def test_figure_6_each_client_in_the_best_round(drawn, tmp_path):
    record_run(tmp_path / "a", 60)
    record_run(tmp_path / "b", 64, seed=1)
    rows, found = drawn("saf-f6")
    assert [(row["series"], row["client"], row["architecture"]) for row in rows] == [
        ("FedSAF-GCSA", "0", "net0"),
        ("FedSAF-GCSA", "1", "net1"),
    ]
    assert [numbers(row, "mean", "low", "high") for row in rows] == [(62, 60, 64), (57, 55, 59)]
    assert "CIFAR-10, Local" in found.missing


def test_figure_7_silhouettes_of_prototypes_on_a_line(drawn, tmp_path):
    """Places 0, 10 of client 0 and 1, 11 of client 1; classes 0, 1, 0, 1."""
    for seed in (0, 1):
        record_run(tmp_path / f"a{seed}", seed=seed)
    rows, found = drawn("saf-f7")
    assert [(row["seed"], row["client"], row["class"]) for row in rows] == [
        ("0", "0", "0"),
        ("0", "0", "1"),
        ("0", "1", "0"),
        ("0", "1", "1"),
    ]
    assert len({row["x"] for row in rows}) == 4
    silhouettes, _ = drawn("saf-f7", "_silhouettes")
    by_class = (9.5 / 10.5 + 8.5 / 9.5) / 2  # (b - a) / max(a, b), a = 1, b = 10.5 and 9.5
    for row in silhouettes:
        assert numbers(row, "by_class", "by_client") == pytest.approx((by_class, -0.45), abs=1e-6)
    assert len(silhouettes) == 2
    assert found.missing == ["FedSAF-MSE"]


def test_figure_8_own_alignment_and_gcsa(drawn, tmp_path):
    record_run(tmp_path / "own", 61, choices={"method": "fedproto", "alignment": "mse_instance"})
    record_run(tmp_path / "gcsa", 65, choices={"method": "fedproto", "alignment": "gcsa"})
    rows, found = drawn("saf-f8")
    found_values = {(row["panel"], row["point"], row["series"]): float(row["mean"]) for row in rows}
    assert found_values == {
        ("CIFAR-10", "Dir(0.1)", "FedProto"): 61,
        ("CIFAR-10", "Dir(0.1)", "FedProto + GCSA"): 65,
    }
    assert len(found.missing) == 34


def test_figure_9_curves_with_the_best_round_of_the_mean(drawn, tmp_path):
    record_run(tmp_path / "a", 60)
    record_run(tmp_path / "b", 64, seed=1)
    rows, _ = drawn("saf-f9")
    assert [numbers(row, "round", "mean", "low", "high") for row in rows] == [(1, 52, 50, 54), (2, 62, 60, 64)]
    assert [row["best"] for row in rows] == ["False", "True"]


def test_figure_10_accuracy_by_local_epochs(drawn, tmp_path):
    for epochs, hits in ((1, 55), (5, 60), (20, 58)):
        record_run(tmp_path / f"{epochs}", hits, choices=CIFAR100, local_epochs=epochs, partition={"alpha": 0.5})
    rows, found = drawn("saf-f10")
    assert [numbers(row, "E", "mean") for row in rows] == [(1, 55), (5, 60), (20, 58)]
    assert "FedSAF-GCSA, E=10" in found.missing


def test_margins_of_the_server_and_of_the_best_client(drawn, tmp_path):
    choices = {"paper": "fedtgp", "model_group": "htfe8", "method": "fedproto", "alignment": "mse_instance"}
    margins = [{"global_margin_mean": 0.5}, {"global_margin_mean": 0.25}]
    record_run(tmp_path / "a", choices=CIFAR100 | choices, diagnostics=margins, **TGP)
    rows, found = drawn("tgp-k5")
    curves = {(row["series"], int(row["round"])): float(row["mean"]) for row in rows}
    best = {("best client", 1): 2.0, ("best client", 2): 2.0}  # margins of the two clients are 1 and 2
    assert curves == {("global", 1): 0.5, ("global", 2): 0.25} | best
    assert found.missing == ["FedTGP, global", "FedTGP, best client"]


def test_fedproc_figure_4_curves_of_the_global_model(drawn, tmp_path):
    record_run(tmp_path / "a", 70, choices=PROC_CHOICES | {"method": "fedavg"}, **PROC)
    rows, _ = drawn("proc-f4")
    assert [(row["panel"], row["series"], *numbers(row, "round", "mean")) for row in rows] == [
        ("CIFAR-10", "FedAvg", 1, 60),
        ("CIFAR-10", "FedAvg", 2, 70),
    ]


def test_fedproc_figure_5_the_last_round_by_local_epochs(drawn, tmp_path):
    for epochs, hits in ((1, 40), (40, 45)):
        record_run(
            tmp_path / f"{epochs}", hits, choices=PROC_CHOICES | {"method": "moon"}, **PROC | {"local_epochs": epochs}
        )
    rows, found = drawn("proc-f5")
    assert [(row["series"], *numbers(row, "E", "mean")) for row in rows] == [("MOON", 1, 40), ("MOON", 40, 45)]
    assert "accuracy, pooled, last round" in found.shown
