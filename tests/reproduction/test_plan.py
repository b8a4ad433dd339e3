"""What a target says of itself before it starts, from made-up runs whose numbers can be followed by hand."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from fedsaf.core.identity import config_hash
from fedsaf.reproduction.composer import Composer
from fedsaf.reproduction.experiments import cells
from fedsaf.reproduction.plan import Plan, expected_costs, finished_costs, plan_table
from fedsaf.reproduction.probe import Rates, RunCost, cost_of, measure, probed_costs
from tests.reproduction.planned import made_cell

CONFIG = {
    "dataset": {"max_samples": 1000},
    "partition": {},
    "method": {"name": "fedproto"},
    "protocol": {"split": "stratified", "train_fraction": 0.25},
    "prototype": {},
    "stand_in_for": None,
    "rounds": 10,
    "local_epochs": 2,
    "num_clients": 8,
    "participation_ratio": 0.5,
    "batch_size": 10,
    "eval_every": 5,
}


def planned(folder: Path, seed=0, **changes):
    own = (f"seed={seed}", *(f"{key}={value}" for key, value in changes.items()))
    config = {**CONFIG, **changes, "seed": seed}
    run = made_cell("table_1", own, (), config, {"dataset": "cifar10", "model_group": "htfe9", "partition": "iid"})
    run.__dict__["folder"] = folder
    return run


def finish(run, seconds, sent=2**30, size=100):
    run.folder.mkdir()
    summary = {
        "config_hash": config_hash(run.config),
        "upload_bytes": sent // 4,
        "download_bytes": 3 * sent // 4,
        "seconds": {"total": seconds},
    }
    (run.folder / "status.json").write_text(json.dumps({"state": "finished"}))
    (run.folder / "summary.json").write_text(json.dumps(summary))
    (run.folder / "checkpoint").write_bytes(bytes(size))


def shown(plan, costs, jobs=1):
    console = Console(file=io.StringIO(), width=120)
    console.print(plan_table(plan, costs, jobs))
    return console.file.getvalue()


def test_a_whole_run_from_the_rates_of_its_kind(tmp_path):
    """250 samples train at half of the clients, twice a round: 2500 in all; 750 are tested twice."""
    rates = Rates(trained=0.1, tested=0.01, served=0.5, sent=7.0, disk=11.0)
    cost = cost_of(planned(tmp_path / "run"), rates)
    assert cost.hours == pytest.approx((2500 * 0.1 + 2 * 750 * 0.01 + 10 * 4 * 0.5) / 3600)
    assert (cost.sent_bytes, cost.disk_bytes) == (10 * 4 * 7.0, 2 * 8 * 11.0)


@pytest.mark.parametrize(
    ("dataset", "partition", "samples"),
    [
        ({}, {}, 60_000),
        ({"max_per_class": 20}, {}, 200),
        ({"max_per_class": 20}, {"rule": "by_domain"}, 1600),
        ({}, {"max_samples_per_client": 50}, 400),
    ],
)
def test_every_limit_of_the_data_counts(tmp_path, dataset, partition, samples):
    run = planned(tmp_path / "run", dataset=dataset, partition=partition)
    run.choices["partition"] = partition.get("rule", "iid")
    rates = Rates(trained=3600.0, tested=0.0, served=0.0, sent=0.0, disk=0.0)
    assert cost_of(run, rates).hours == samples * 0.25 * 0.5 * 2 * 10


KINDS = ("fedproc_t2", "fedtgp_k6_pathological", "table_5")
CONF = Path(__file__).resolve().parents[2] / "conf"


def check_probe(experiment, scale):
    composer = Composer(CONF)
    run = cells(experiment.replace("_", "-"), scale, [], ["0"], composer)[-1]
    rates = measure(run, composer)
    assert min(rates.trained, rates.tested) > 0
    cost = cost_of(run, rates)
    assert cost.hours > 0
    assert cost.disk_bytes > 0


@pytest.mark.parametrize("experiment", KINDS)
def test_a_kind_is_measured_whatever_its_data_and_partition_are(experiment):
    check_probe(experiment, "smoke")


@pytest.mark.slow
@pytest.mark.parametrize("experiment", sorted(path.stem for path in (CONF / "experiment").glob("*_*.yaml")))
def test_every_experiment_is_measured(experiment):
    check_probe(experiment, "small")


def test_a_kind_that_cannot_be_measured_is_named_and_stops_nothing(tmp_path, monkeypatch):
    def refuse(run, composer, words):
        raise ValueError("images are too small")

    monkeypatch.setattr("fedsaf.reproduction.probe.measure", refuse)
    console, run = Console(file=io.StringIO(), width=200), planned(tmp_path / "run")
    costs = probed_costs([run], Composer(CONF), console)
    assert "measuring 1 kind(s) of run" in console.file.getvalue(), "a log file tells why nothing moves yet"
    assert "not measured: cifar10, htfe9, fedproto: images are too small" in console.file.getvalue()
    assert "unknown before the first runs" in shown(Plan("table-9", "smoke", [run]), costs)


def test_what_is_not_known_is_measured_unless_it_takes_seconds(tmp_path, monkeypatch):
    rates = Rates(trained=1.0, tested=1.0, served=1.0, sent=1.0, disk=1.0)
    monkeypatch.setattr("fedsaf.reproduction.probe.measure", lambda run, composer, words: rates)
    done, other, longer = planned(tmp_path / "a"), planned(tmp_path / "b", 1), planned(tmp_path / "c", rounds=20)
    finish(done, 360)

    def costs(scale, afresh=False):
        plan, console = Plan("table-1", scale, [done, other, longer]), Console(file=io.StringIO())
        return expected_costs(plan, Composer(CONF), console, afresh)

    recorded, measured = 0.1, cost_of(longer, rates).hours
    assert {path.name: cost.hours for path, cost in costs("smoke").items()} == {"a": recorded, "b": recorded}
    assert {path.name: cost.hours for path, cost in costs("small").items()} == {
        "a": recorded,
        "b": recorded,
        "c": measured,
    }
    assert {path.name: cost.hours for path, cost in costs("smoke", afresh=True).items()} == {
        "b": cost_of(other, rates).hours,
        "c": measured,
    }


def test_finished_runs_tell_what_others_of_their_kind_and_size_take(tmp_path):
    runs = [planned(tmp_path / f"run{seed}", seed) for seed in range(4)]
    longer = planned(tmp_path / "longer", 0, rounds=20)
    for run, seconds in zip(runs, (360, 720, 1800), strict=False):
        finish(run, seconds)
    costs = finished_costs([*runs, longer])
    assert costs.keys() == {run.folder for run in runs}
    assert (costs[runs[3].folder].hours, costs[runs[3].folder].sent_bytes) == (0.2, 2**30)
    assert costs[runs[3].folder].disk_bytes > 100
    text = shown(Plan("table-1", "small", [*runs, longer]), costs)
    assert "5: 3 done, 2 to do" in text
    assert "unknown before the first runs of this size" in text
    both = costs | {longer.folder: RunCost(1.0, 0.0, 2**29)}
    text = shown(Plan("table-1", "small", [*runs, longer]), both, jobs=2)
    assert "1.2 hours one after another, 0.6 with 2 side by side" in text
    assert "1.00 GiB" in text
    assert "0.50 GiB with all checkpoints, 0.50 GiB the largest run" in text


@pytest.mark.parametrize(("hours", "text"), [(1234.0, "1234 hours"), (9.96, "10 hours"), (1.26, "1.3 hours")])
def test_large_numbers_have_no_exponent(tmp_path, hours, text):
    run = planned(tmp_path / "run")
    assert f" {text} one after another " in shown(Plan("table-1", "full", [run]), {run.folder: RunCost(hours, 0, 0)})


def test_a_common_test_part_is_scored_by_every_client(tmp_path):
    run = planned(tmp_path / "run", protocol={"split": "common", "train_fraction": 0.25})
    trained = cost_of(run, Rates(trained=3600.0, tested=0.0, served=0.0, sent=0.0, disk=0.0)).hours
    tested = cost_of(run, Rates(trained=0.0, tested=3600.0, served=0.0, sent=0.0, disk=0.0)).hours
    assert trained == pytest.approx(1000 * 5 / 6 * 2 * 0.5 * 10)
    assert tested == pytest.approx(8 * 1000 / 6 * 2)


def test_minutes_where_they_read_better_and_nothing_to_do(tmp_path):
    run = planned(tmp_path / "run")
    costs = {run.folder: RunCost(0.1, 0.0, 0.0)}
    assert "6 minutes one after another " in shown(Plan("table-1", "small", [run]), costs)
    finish(run, 360)
    assert "nothing to do" in shown(Plan("table-1", "small", [run]), costs)


def test_stand_ins_are_named(tmp_path):
    run = planned(tmp_path / "run")
    run.config["stand_in_for"] = "cifar10"
    assert "embedded data take the place of cifar10" in shown(Plan("table-1", "small", [run]), {})
