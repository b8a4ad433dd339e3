"""The specification of the views, made without an account or a network, against the keys that the mirror has."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fedsaf.tracking.mirror import Tally, chosen, numbers_of
from tests.tracking.conftest import clean_environment

pytest.importorskip("wandb_workspaces", reason="needs the extra dashboard")

ENTRY = Path(__file__).resolve().parents[2] / "src" / "dashboard.py"


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    folder = tmp_path_factory.mktemp("views")
    # An address where nobody listens: whoever asked the service would fail.
    environment = clean_environment(folder, WANDB_BASE_URL="http://127.0.0.1:9")

    def run(*words):
        command = [sys.executable, str(ENTRY), *words]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, timeout=120)

    run.folder = folder
    return run


@pytest.fixture(scope="module")
def views(start):
    result = start("--dry-run", "--scale", "small", "--dataset", "cifar10")
    assert result.returncode == 0, result.stderr
    return json.loads((start.folder / "report" / "dashboard.json").read_text())


def found(node, key):
    """Return every value of a key, however deep."""
    if isinstance(node, list):
        return [value for element in node for value in found(element, key)]
    if not isinstance(node, dict):
        return []
    return [*([node[key]] if key in node else []), *(v for element in node.values() for v in found(element, key))]


def panels(view, kind):
    return [
        panel["config"]
        for panels in found(view, "panels")
        if isinstance(panels, list)
        for panel in panels
        if panel.get("viewType") == kind
    ]


def logged(make_record):
    """Names that a run mirrors: of its rounds, of its configuration, of its table of clients."""
    record = make_record(1, prototype_hits=(5, 45))
    record.metrics["loss"] |= {"prototype_alignment": 1.0, "instance_alignment": 1.0}
    keys = {*numbers_of(record), *Tally("classifier", []).after(record)}
    config = {"scale": "small", "stand_in_for": None, "partition": {"alpha": 0.1}, "alignment": dict.fromkeys(WEIGHTS)}
    method = {"reads": ["alignment", "prototype"]}
    config |= chosen({"method": method}, dict.fromkeys(("dataset", "method", "alignment"), "x"))
    return keys, config, {*record.clients[0], "nearest_prototype"}


WEIGHTS = ("proto_weight", "inst_weight")


@pytest.mark.parametrize("name", ["workspace", "report"])
def test_both_views_answer_every_question(views, name):
    view = views[name]
    assert len(panels(view, "Run History Line Plot")) == 8
    assert {tuple(config["metrics"]) for config in panels(view, "Bar Chart")} == {("reported/best",)}
    tables = [config["panelDefId"] for config in panels(view, "Vega2")]
    assert tables == ["wandb/bar/v0"] * 2
    heat = [config for config in panels(view, "Scatter Plot") if "zAxis" in config]
    # Weights mean something for one loss only; a workspace has one table of runs, a report one per loss.
    assert len(heat) == (1 if name == "workspace" else 4)
    for config in heat:
        assert (config["xAxis"], config["yAxis"]) == tuple(f"config:alignment.value.{key}" for key in WEIGHTS)
        assert config["zAxis"] == "summary:reported/best"
        assert len(config["customGradient"]) == 3
    sent = [config for config in panels(view, "Scatter Plot") if "zAxis" not in config]
    assert [(config["xAxis"], config["yAxis"]) for config in sent] == [
        ("summary:reported/sent_mib", "summary:reported/best")
    ]


def test_lines_are_means_over_the_seeds_of_a_cell_and_nothing_else(views):
    for view in views.values():
        groupings = found(view, "grouping")
        assert groupings
        assert all([key["name"] for key in grouping] == ["group"] for grouping in groupings)
        for kind in ("Run History Line Plot", "Bar Chart"):
            for config in panels(view, kind):
                assert "groupBy" not in config, "a panel that groups by itself would mix cells"
                assert (config["groupAgg"], config["groupArea"]) == ("mean", "stddev")
        for filters in found(view, "filters"):
            if isinstance(filters, dict):
                wanted = {entry["key"]["name"]: entry["value"] for entry in filters["filters"]}
                assert wanted["scale"] == "small"
                assert wanted["chosen_dataset"] == "cifar10"


def test_the_report_shows_weights_loss_by_loss(views):
    wanted = [
        entry["value"]
        for filters in found(views["report"], "filters")
        if isinstance(filters, dict)
        for entry in filters["filters"]
        if entry["key"]["name"] == "chosen_method"
    ]
    assert wanted == ["fedsaf_mse", "fedsaf_cosine", "fedsaf_gcsa", "fedsaf_rcsa"]


def test_every_key_of_a_view_is_mirrored(views, make_record):
    keys, config, columns = logged(make_record)
    for view in views.values():
        shown = [key for line in panels(view, "Run History Line Plot") for key in (*line["metrics"], line["xAxis"])]
        shown += [key for bars in panels(view, "Bar Chart") for key in bars["metrics"]]
        axes = [p[a] for p in panels(view, "Scatter Plot") for a in ("xAxis", "yAxis", "zAxis") if a in p]
        axes += found(view, "accessor")
        shown += [key.removeprefix("summary:") for key in axes if key.startswith("summary:")]
        assert set(shown) <= keys
        for key in (key.removeprefix("config:") for key in axes if key.startswith("config:")):
            name, _, rest = key.partition(".value")
            assert name in config
            assert not rest or rest[1:] in config[name]
        for chart in panels(view, "Vega2"):
            assert set(chart["fieldSettings"].values()) <= columns
            assert '"tableKey"' in json.dumps(chart["userQuery"])


def test_without_a_key_or_with_an_unknown_scale_one_line_says_so(start):
    result = start()
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: no W&B key found")
    assert "--dry-run" in line
    result = start("--dry-run", "--scale", "smal")
    assert result.returncode == 1
    assert "--scale smal is unknown; did you mean small" in result.stderr
