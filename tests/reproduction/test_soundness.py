"""Records that contradict each other, or hold what no run can hold, count nowhere, and one bad folder stops nothing."""

import json

import pytest
from omegaconf import OmegaConf

from claims import main as claims
from fedsaf.core.identity import config_hash
from fedsaf.reproduction.collect import collect
from page import main as page
from report import main as report
from tests.reproduction.recorded import record_run

LINES = {"metrics": "metrics.jsonl", "clients": "clients.jsonl", "timing": "timing.jsonl"}


def lines_of(folder, name):
    return (folder / LINES[name]).read_text().splitlines()


def write(folder, name, lines):
    (folder / LINES[name]).write_text("".join(line + "\n" for line in lines))


def change_row(folder, name, number, **values):
    lines = lines_of(folder, name)
    lines[number - 1] = json.dumps(json.loads(lines[number - 1]) | values)
    write(folder, name, lines)


def change_summary(folder, **values):
    path = folder / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def accuracy(value):
    def change(folder):
        entry = {"pooled": value, "client_mean": 0.5}
        change_row(folder, "metrics", 2, classifier=entry)
        both = {"last": entry | {"round": 2}, "best": entry | {"round": 2}}
        change_summary(folder, classifier=both)

    return change


def without(name, number):
    return lambda folder: write(folder, name, [line for i, line in enumerate(lines_of(folder, name), 1) if i != number])


def cut(folder):
    for name, kept in (("metrics", 2), ("timing", 2), ("clients", 4)):
        write(folder, name, lines_of(folder, name)[:kept])
    change_summary(folder, rounds=2)


def config(**values):
    def change(folder):
        content = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml")) | values
        OmegaConf.save(OmegaConf.create(content), folder / "config.yaml")
        kept = {key: value for key, value in content.items() if key not in ("choices", "overrides")}
        change_summary(folder, config_hash=config_hash(kept))

    return change


DAMAGE = {
    "cut short": (cut, "metrics.jsonl does not hold every round up to 300"),
    "above one": (accuracy(1.7), "metrics.jsonl, line 2: classifier.pooled is 1.7, expected a share in [0, 1]"),
    "below zero": (accuracy(-0.5), "metrics.jsonl, line 2: classifier.pooled is -0.5, expected a share"),
    "a truth value": (accuracy(True), "metrics.jsonl, line 2: classifier.pooled is True"),
    "a text": (accuracy("0.9"), "metrics.jsonl, line 2: classifier.pooled is '0.9'"),
    "a list": (accuracy([0.9]), "metrics.jsonl, line 2: classifier.pooled is [0.9]"),
    "huge": (accuracy(1e308), "metrics.jsonl, line 2: classifier.pooled is 1e+308"),
    "negative bytes": (
        lambda folder: change_row(folder, "metrics", 1, upload_bytes={"total": -1}),
        "metrics.jsonl, line 1: upload_bytes.total is -1, expected a count",
    ),
    "no bytes": (
        lambda folder: change_row(folder, "metrics", 1, upload_bytes={"total": None}),
        "metrics.jsonl, line 1: upload_bytes.total is None",
    ),
    "seconds": (lambda folder: change_row(folder, "timing", 2, server="1"), "timing.jsonl, line 2: server is '1'"),
    "time lost": (without("timing", 5), "timing.jsonl does not hold the rounds of metrics.jsonl"),
    "client lost": (without("clients", 3), "clients.jsonl: round 2 does not hold every client once, in order"),
    "client twice": (
        lambda folder: write(folder, "clients", [*lines_of(folder, "clients")[:2], *lines_of(folder, "clients")[1:]]),
        "clients.jsonl: round 1 does not hold every client once",
    ),
    "clients out of order": (
        lambda folder: write(folder, "clients", lines_of(folder, "clients")[::-1]),
        "clients.jsonl does not hold the rounds of metrics.jsonl",
    ),
    "client above one": (
        lambda folder: change_row(folder, "clients", 3, classifier=2.5),
        "clients.jsonl, line 3: classifier is 2.5, expected a share",
    ),
    "client without a name": (
        lambda folder: write(folder, "clients", ['{"round": 1}', *lines_of(folder, "clients")[1:]]),
        "the records are not as they are written: KeyError('client')",
    ),
    "other seconds": (
        lambda folder: change_summary(folder, seconds={"total": 1.0}),
        "summary.json does not follow from the recorded rounds: seconds",
    ),
    "other failures": (lambda folder: change_summary(folder, num_failed_clients=3), "num_failed_clients"),
    "another rule": (
        lambda folder: change_summary(folder, predictor="oracle"),
        "summary.json: predictor is 'oracle', and no round was scored by it",
    ),
    "no rule": (lambda folder: change_summary(folder, predictor=None), "summary.json: predictor is None"),
    "another state": (
        lambda folder: (folder / "status.json").write_text('{"state": "weird"}'),
        "status.json: state is 'weird', expected one of running, finished, failed, interrupted",
    ),
    "a list of states": (lambda folder: (folder / "status.json").write_text("[1]"), "status.json: holds a list"),
    "deep": (lambda folder: (folder / "summary.json").write_text("[" * 100_000), "summary.json: is damaged"),
    "long": (
        lambda folder: (folder / "timing.jsonl").write_text("9" * 6000 + "\n"),
        "timing.jsonl, line 1: is damaged",
    ),
    "a deep configuration": (
        lambda folder: (folder / "config.yaml").write_text("[" * 100_000),
        "config.yaml cannot be read",
    ),
    "domains of nobody": (
        lambda folder: (
            change_summary(folder, domains={"classifier": None}),
            (folder / "partition.json").write_text('{"num_clients": 2}'),
        ),
        "summary.json has domains, but partition.json does not name one for each client",
    ),
    "seed": (config(seed="one"), "config.yaml: seed is 'one', expected a whole number"),
    "rounds": (config(rounds="many"), "the records are not as they are written: TypeError"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named_and_the_other_runs_count(tmp_path, name):
    damage, message = DAMAGE[name]
    damage(record_run(tmp_path / "bad"))
    record_run(tmp_path / "good", seed=1)
    (run,), (aside,) = collect([tmp_path])
    assert run.folder.name == "good"
    assert aside.is_fault
    assert message in aside.reason
    assert "\n" not in aside.reason


@pytest.mark.parametrize("commit", [["x"], 3, None])
def test_a_commit_that_is_no_text_is_unknown(tmp_path, commit):
    (record_run(tmp_path / "run") / "environment.json").write_text(json.dumps({"git": {"commit": commit}}))
    ((run,), aside) = collect([tmp_path])
    assert (run.commit, aside) == (None, [])


def test_every_entry_goes_on_beside_a_bad_folder(tmp_path, capsys):
    for name, (damage, _) in DAMAGE.items():
        damage(record_run(tmp_path / "runs" / name.replace(" ", "_")))
    record_run(tmp_path / "runs" / "good")
    root = str(tmp_path / "runs")
    assert report([root, "--scale", "full", "--table", "table-3", "--output", str(tmp_path / "report")]) == 1
    assert "60.00 ± 0.00" in (tmp_path / "report" / "saf-t3_full.md").read_text()
    assert claims([root, "--output", str(tmp_path / "claims.md")]) == 1
    assert page([root, "--output", str(tmp_path / "page" / "index.html")]) == 1
    said = capsys.readouterr().out
    assert all(f"{name.replace(' ', '_')}: " in said for name in DAMAGE)


def test_verdicts_are_not_replaced_by_those_of_no_run(tmp_path, capsys):
    kept = tmp_path / "claims.md"
    kept.write_text("verdicts")
    (tmp_path / "runs").mkdir()
    assert claims([str(tmp_path / "runs"), "--output", str(kept)]) == 1
    assert kept.read_text() == "verdicts"
    assert f"no finished run, so {kept} is left as it is" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("entry", "name"), [(report, "file"), (claims, "file/x.md"), (claims, "folder"), (page, "folder")]
)
def test_a_place_where_nothing_can_be_written_is_refused_before_anything_is_read(tmp_path, capsys, entry, name):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "runs").mkdir()
    with pytest.raises(SystemExit, match="2"):
        entry([str(tmp_path / "runs"), "--output", str(tmp_path / name)])
    assert f"nothing can be written to {tmp_path / name}" in capsys.readouterr().err


def test_a_root_that_is_a_file_is_a_mistake(tmp_path, capsys, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("RESULTS_ROOT", str(tmp_path / "file"))
    for entry in (report, claims, page):
        with pytest.raises(SystemExit, match="2"):
            entry(["--output", str(tmp_path / "out")])
        assert "is a file; expected a folder of run folders" in capsys.readouterr().err
