"""A finished run whose own code or data changed since is not shown without a word; one that did not change is."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedsaf.core.fingerprints import FINGERPRINT, Changes, changes_since, read_fingerprint, write_fingerprint

NOTHING = Changes([], [])


@dataclass
class Content:
    """Data as a source loads them: all files of a folder, and their content."""

    folder: Path

    @property
    def files(self):
        return sorted(path for path in self.folder.rglob("*.png") if not path.name.startswith("unread"))

    @property
    def fingerprint(self):
        return " ".join(f"{path.parent.name} {path.read_text()}" for path in self.files)


@pytest.fixture
def run(tmp_path):
    """Record a run on two classes of two files; return how it is compared, and how often data were loaded for it."""
    folder = tmp_path / "run"
    for name in ("cat/1.png", "cat/2.png", "dog/1.png", "dog/2.png"):
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_text(f"pixels of {name}")
    folder.mkdir()

    class Run:
        config = {"dataset": {"_target_": "mine.Folder", "path": str(tmp_path / "data")}}
        data, loads = tmp_path / "data", 0

        def begin(self):
            write_fingerprint(folder, self.config, Content(self.data), None)

        def load(self):
            self.loads += 1
            if (self.data / "unreadable").exists():
                raise ValueError("dataset.path: cannot be decoded\nat all")
            return Content(self.data)

        def compare(self):
            return changes_since(folder, self.config, self.load)

    return Run()


def later(path):
    """Set the time of change as if the file had been written a while after."""
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 10**9))


def test_untouched_data_are_not_even_loaded(run):
    run.begin()
    assert run.compare() == NOTHING
    assert run.loads == 0


def test_a_replaced_file_is_named(run):
    run.begin()
    (run.data / "cat/2.png").write_text("other pixels")
    assert run.compare() == Changes([f"the data ({run.data / 'cat/2.png'})"], [])
    assert run.compare() != NOTHING  # and named again


def test_another_content_of_the_same_size_is_seen_by_its_time(run):
    run.begin()
    (run.data / "cat/2.png").write_text("PIXELS of cat/2.png")
    later(run.data / "cat/2.png")
    assert run.compare().parts == [f"the data ({run.data / 'cat/2.png'})"]


def test_the_same_content_with_another_time_is_no_change_and_is_looked_into_once(run):
    run.begin()
    later(run.data / "dog/1.png")
    assert run.compare() == NOTHING
    assert run.loads == 1
    assert run.compare() == NOTHING
    assert run.loads == 1
    (run.data / "dog/1.png").write_text("other")
    assert run.compare() != NOTHING


def test_the_same_content_is_no_change_where_nothing_can_be_written(run, monkeypatch):
    def refuse(*args):
        raise PermissionError

    run.begin()
    later(run.data / "dog/1.png")
    monkeypatch.setattr("fedsaf.core.fingerprints.write_atomically", refuse)
    assert run.compare() == run.compare() == NOTHING
    assert run.loads == 2


def added(data):
    (data / "cat/3.png").write_text("new")


def new_class(data):
    (data / "bird").mkdir()
    (data / "bird/1.png").write_text("new")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (added, "cat/3.png"),
        (new_class, "bird"),
        (lambda data: (data / "dog/1.png").unlink(), "dog/1.png"),
        (lambda data: (data / "dog").rename(data / "wolf"), "dog, "),
    ],
)
def test_files_that_came_or_went_are_named(run, change, named):
    run.begin()
    change(run.data)
    (part,) = run.compare().parts
    assert str(run.data / named) in part


def test_files_that_are_not_read_are_no_change(run):
    run.begin()
    (run.data / "cat/notes.txt").write_text("mine")
    assert run.compare() == NOTHING
    assert run.loads == 0
    (run.data / "cat/unread.png").write_text("passed over by the source")
    assert run.compare() == NOTHING
    assert run.loads == 1


def test_of_many_files_the_folder_is_named(run, monkeypatch):
    monkeypatch.setattr("fedsaf.core.fingerprints.MANY", 3)
    run.begin()
    assert run.compare() == NOTHING
    assert len((run.data.parent / "run" / FINGERPRINT).read_text()) < 2000
    (run.data / "cat/2.png").write_text("other pixels")
    assert run.compare().parts == [f"the data ({run.data / 'cat'})"]


def test_data_that_are_gone_are_not_compared(run):
    run.begin()
    run.data.rename(run.data.with_name("elsewhere"))
    found = run.compare()
    assert found.parts == []
    assert "not here any more" in found.notes[0]
    assert run.loads == 0


def test_data_that_cannot_be_loaded_any_more_are_a_change_with_its_reason(run):
    run.begin()
    (run.data / "unreadable").mkdir()
    (part,) = run.compare().parts
    assert part.endswith("unreadable: dataset.path: cannot be decoded)")


def test_data_below_the_data_root_are_compared_wherever_that_is(run, monkeypatch):
    """The same data from another place are the same; other data are named by the variable."""
    monkeypatch.setenv("DATA_ROOT", str(run.data.parent))
    run.begin()
    assert str(run.data) not in json.dumps(read_fingerprint(run.data.parent / "run")["data"]["folders"])
    moved = run.data.parent / "new"
    moved.mkdir()
    run.data.rename(moved / "data")
    run.data = moved / "data"
    monkeypatch.setenv("DATA_ROOT", str(moved))
    later(run.data / "cat/1.png")
    assert run.compare() == NOTHING
    (run.data / "cat/1.png").write_text("other")
    assert run.compare().parts == ["the data ($DATA_ROOT/data/cat/1.png)"]


def test_data_that_come_to_lie_where_a_set_is_looked_for_first_are_seen(run, monkeypatch, tmp_path):
    run.config = {"dataset": {"name": "cifar10"}}
    monkeypatch.delenv("DATA_ROOT", raising=False)
    run.begin()
    assert run.compare() == NOTHING
    (tmp_path / "root/cifar10").mkdir(parents=True)
    (tmp_path / "root/cifar10/1.png").write_text("other")
    monkeypatch.setenv("DATA_ROOT", str(tmp_path / "root"))
    run.data = tmp_path / "root/cifar10"
    assert run.compare().parts == ["the data ($DATA_ROOT/cifar10)"]


def test_embedded_data_have_no_files_to_compare(run):
    run.data = run.data.with_name("empty")
    run.begin()
    assert run.compare() == NOTHING
    assert run.loads == 0


@pytest.fixture
def loss(run, tmp_path, monkeypatch):
    """The own loss of a recorded run."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_loss.py").write_text("import own_scale\n")
    (tmp_path / "own_scale.py").write_text("scale = 1\n")
    run.config = run.config | {"method": {"loss": {"_target_": "own_loss.Manhattan"}}}
    run.begin()
    return tmp_path / "own_loss.py"


def test_an_edited_own_part_is_named_with_its_file(run, loss):
    assert run.compare() == NOTHING
    loss.with_name("own_scale.py").write_text("scale = 100\n")
    assert run.compare().parts == ["the code of Manhattan (own_scale.py)"]
    (run.data / "cat/1.png").write_text("other")
    assert len(run.compare().parts) == 2


def test_a_moved_own_part_is_none(run, loss):
    loss.rename(loss.with_name("own_losses.py"))
    run.config = run.config | {"method": {"loss": {"_target_": "own_losses.Manhattan"}}}
    assert run.compare() == NOTHING


def test_an_own_part_in_the_place_of_one_of_the_same_name_is_a_change(run, loss):
    """Only their class names are in the hash of a configuration."""
    theirs = run.config | {"method": {"loss": {"_target_": "fedsaf.losses.Manhattan"}}}
    mine, run.config = run.config, theirs
    assert run.compare().parts == ["the code of Manhattan (own_loss.py, own_scale.py)"]
    run.begin()
    run.config = mine
    assert run.compare().parts == ["the code of Manhattan (own_loss.py, own_scale.py)"]


def test_other_code_of_fedsaf_or_of_a_library_is_a_note(run, tmp_path):
    run.config = run.config | {"optimizer": {"_target_": "torch.optim.SGD"}}
    run.begin()
    content = read_fingerprint(tmp_path / "run")
    content["code"] |= {"sha256": "0", "version": "0.0.9", "commit": "0123456789abcdef"}
    content["code"]["libraries"]["SGD"]["__init__.py"] = "0"
    (tmp_path / "run" / FINGERPRINT).write_text(json.dumps(content))
    found = run.compare()
    assert found.parts == []
    library, fedsaf = found.notes
    assert "library of SGD" in library
    assert "0.0.9 (012345678) then" in fedsaf


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "{}",
        '{"code": 3, "data": [1]}',
        '{"code": {"own": 3, "libraries": {"SGD": 1}}, "data": {"folders": 3, "kinds": 4}}',
        '{"code": {"own": {"A": {}}}, "data": {"folders": {"there": 3}, "kinds": [4]}}',
    ],
)
def test_of_what_an_older_or_damaged_record_does_not_say_nothing_is_said(run, tmp_path, content):
    (tmp_path / "run" / FINGERPRINT).write_text(content)
    assert run.compare().parts == []


def test_an_old_run_without_a_record_has_no_changes(run):
    assert run.compare() == NOTHING
