"""Data that stand in can be shared out as every target asks; a sweep would tell only when its job starts."""

import json
from pathlib import Path

import pytest

from fedsaf.assembly import federated_data
from fedsaf.core.config import flatten
from fedsaf.reproduction.composer import Composer
from fedsaf.reproduction.experiments import cells, displays
from fedsaf.reproduction.selection import table_definitions

CONF = Path(__file__).resolve().parents[2] / "conf"
COMPOSER = Composer(CONF)
OF_DATA = ("dataset", "partition", "protocol", "num_clients", "batch_size")
TARGETS = sorted(
    {table.target for table in table_definitions().values()} | {figure.target for figure in displays("figure").values()}
)


def check(target):
    shared = {}
    for run in cells(target, "smoke", [], ["0"], COMPOSER):
        assert run.config["stand_in_for"], "embedded data need no download"
        key = json.dumps([item for item in flatten(run.config) if item[0].split(".")[0] in OF_DATA])
        shared.setdefault(key, run)
    for run in shared.values():
        record = federated_data(run.config).record
        assert record.num_clients == run.config["num_clients"], run.own
        assert all(len(own) for own in record.train), run.own


@pytest.mark.parametrize("target", ["fedtgp-k6", "table-4"])
def test_a_few_targets(target):
    check(target)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_every_target(target):
    check(target)


@pytest.mark.parametrize("scale", ["smoke", "small"])
def test_clients_of_many_classes_get_images_of_as_many(scale, monkeypatch, tmp_path):
    monkeypatch.delenv("DATA_ROOT", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    runs = cells("fedtgp-k6", scale, [], ["0"], COMPOSER)
    many = [run for run in runs if run.config["partition"].get("classes_per_client", 0) > 10]
    assert {(run.choices["dataset"], run.config["dataset"]["num_classes"]) for run in many} == {("synthetic", 40)}
    assert {run.choices["dataset"] for run in runs if run not in many} == {"digits"}
