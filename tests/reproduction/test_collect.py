"""Runs that must not count, each with its reason."""

import json

import pytest
from omegaconf import OmegaConf

from fedsaf.reproduction.collect import collect
from tests.reproduction.recorded import record_run


def reason(root):
    """Return why the one folder does not count, and whether that is a fault."""
    runs, (aside,) = collect([root])
    assert runs == []
    return aside.reason, aside.is_fault


def edit(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_a_sound_run_counts(tmp_path):
    record_run(tmp_path / "run", seed=3)
    (run,), aside = collect([tmp_path])
    assert aside == []
    assert (run.seed, run.settings["dataset"], run.settings["alignment.proto_weight"]) == (3, "cifar10", 1.0)
    assert run.settings["method"] == "fedsaf_gcsa"
    assert not {"seed", "results_root"} & run.settings.keys()
    assert len(run.client_rows) == 2 * 300


def test_no_folder_of_a_run(tmp_path):
    (tmp_path / "notes").mkdir()
    assert collect([tmp_path]) == ([], [])


def test_an_unfinished_run_is_no_fault_and_says_why(tmp_path):
    record_run(tmp_path / "run", finish=False)
    assert reason(tmp_path) == ("failed: ValueError: no", False)


@pytest.mark.parametrize("name", ["config.yaml", "status.json", "summary.json", "metrics.jsonl", "timing.jsonl"])
def test_a_folder_half_deleted(tmp_path, name):
    (record_run(tmp_path / "run") / name).unlink()
    text, is_fault = reason(tmp_path)
    assert is_fault
    assert text.startswith(f"{name} is missing: a part of the folder was deleted")


def test_a_damaged_line_is_named(tmp_path):
    path = record_run(tmp_path / "run") / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + lines[1][:-20] + "\n")
    assert reason(tmp_path)[0].startswith("metrics.jsonl, line 2: is damaged")
    path.write_text(lines[0] + lines[1][:-20])
    assert reason(tmp_path)[0].startswith("metrics.jsonl, line 2: is damaged")
    path.write_text(lines[0] + "3\n")
    assert reason(tmp_path)[0] == "metrics.jsonl, line 2: holds a int, expected an object"
    path.write_bytes(b"\xff\xfe\n")
    assert reason(tmp_path)[0].startswith("metrics.jsonl cannot be read")


def test_a_lost_line_is_noticed(tmp_path):
    path = record_run(tmp_path / "run") / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0])
    assert reason(tmp_path) == ("metrics.jsonl does not hold every round up to 300", True)
    path.write_text("")
    assert reason(tmp_path) == ("metrics.jsonl holds no round", True)
    path.write_text("{}\n")
    assert reason(tmp_path) == ("the records are not as they are written: KeyError('round')", True)


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_are_none(tmp_path, literal):
    path = record_run(tmp_path / "run") / "metrics.jsonl"
    path.write_text(path.read_text().replace('"pooled": 0.6', f'"pooled": {literal}'))
    assert reason(tmp_path) == (f"metrics.jsonl, line 2: is damaged: holds {literal}, expected finite numbers", True)


def test_a_number_that_is_too_large(tmp_path):
    path = record_run(tmp_path / "run") / "metrics.jsonl"
    path.write_text(path.read_text().replace('"pooled": 0.6', '"pooled": 1e999'))
    text = "metrics.jsonl, line 2: classifier.pooled is inf, expected a share in [0, 1]"
    assert reason(tmp_path) == (text, True)


def test_a_summary_that_does_not_follow_from_its_rows(tmp_path):
    folder = record_run(tmp_path / "run")
    edit(folder / "summary.json", lambda content: content["classifier"]["best"].update(pooled=0.99))
    assert reason(tmp_path) == ("summary.json does not follow from the recorded rounds: classifier", True)


def test_another_version_of_the_configuration(tmp_path):
    path = record_run(tmp_path / "run") / "config.yaml"
    content = OmegaConf.load(path)
    content["method"] = {"once_there_was_a_key": 1}
    OmegaConf.save(content, path)
    text, is_fault = reason(tmp_path)
    assert is_fault
    assert "made by another version of the configuration, or edited" in text
    path.write_text("a: [")
    assert reason(tmp_path)[0].startswith("config.yaml cannot be read")
    path.write_text("just text")
    assert reason(tmp_path)[0].startswith("config.yaml cannot be read")


def test_a_damaged_or_missing_file_of_the_clients_is_named(tmp_path):
    path = record_run(tmp_path / "run") / "clients.jsonl"
    whole = path.read_text()
    lines = whole.splitlines()
    path.write_text("\n".join([lines[0], lines[1][:20], *lines[2:]]))
    text, is_fault = reason(tmp_path)
    assert is_fault
    assert text.startswith("clients.jsonl, line 2: is damaged")
    path.write_text("\n".join(lines[:2]))
    assert reason(tmp_path) == ("clients.jsonl does not hold the rounds of metrics.jsonl", True)
    path.unlink()
    assert reason(tmp_path) == ("clients.jsonl is missing: a part of the folder was deleted", True)
    path.write_text(whole)
    assert len(collect([tmp_path])[0]) == 1


def test_a_run_scored_on_a_validation_part_stands_in_no_table(tmp_path):
    record_run(tmp_path / "run", validation={"subset": 0, "folds": 4, "fold": 1})
    assert reason(tmp_path) == ("scored on the validation parts", False)
    record_run(tmp_path / "other")
    (run,), (aside,) = collect([tmp_path], validated=True)
    assert (run.folder.name, aside.folder.name) == ("run", "other")
    assert (aside.reason, aside.is_fault) == ("scored on the test parts", False)
