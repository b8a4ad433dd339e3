"""A file is there whole or not at all, whatever happens while it is written."""

import os

import pytest

from fedsaf.core.files import read_json, remove_leftovers, replacing, write_atomically


class Killed(BaseException):
    """The process dies here."""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("content", ["Schaf, été, 羊\nsecond line\r\n", b"\x00\xff\r\n"])
def test_content_comes_back_byte_for_byte_and_nothing_lies_beside_it(tmp_path, content):
    for _ in range(2):  # made, then replaced
        write_atomically(tmp_path / "file", content)
        assert (tmp_path / "file").read_bytes() == (content if isinstance(content, bytes) else content.encode())
    assert names(tmp_path) == ["file"]


def test_a_file_keeps_the_permissions_that_any_new_file_gets(tmp_path):
    (tmp_path / "plain").touch()
    write_atomically(tmp_path / "file", "x")
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("error", [ValueError, Killed])
def test_what_fails_in_the_middle_leaves_the_old_content(tmp_path, error):
    (tmp_path / "file").write_text("old")

    def fail():
        with replacing(tmp_path / "file") as aside:
            aside.write_text("ne")
            raise error

    with pytest.raises(error):
        fail()
    assert (tmp_path / "file").read_text() == "old"
    left = set(names(tmp_path)) - {"file"}
    assert bool(left) == (error is Killed)
    remove_leftovers(tmp_path)
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_kill_before_syncing_or_renaming_leaves_the_old_content(tmp_path, monkeypatch, step):
    def die(*args):
        raise Killed

    (tmp_path / "file").write_text("old")
    with monkeypatch.context() as patch:
        patch.setattr(os, step, die)
        with pytest.raises(Killed):
            write_atomically(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "old"
    write_atomically(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "new"


def test_what_is_renamed_was_synced_and_so_is_the_folder_after(tmp_path, monkeypatch):
    """A rename that reaches the disk before the content does leaves an empty file after a power loss."""
    steps, fsync, replace = [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (steps.append(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (steps.append("rename"), replace(a, b)))
    write_atomically(tmp_path / "file", "x")
    assert [steps[0].endswith(".partial"), *steps[1:]] == [True, "rename", str(tmp_path)]


def test_leftovers_of_one_file_are_told_from_those_of_another(tmp_path):
    for name in (".a.json.12.partial", ".b.json.12.partial", "a.json", "mine.partial"):
        (tmp_path / name).touch()
    remove_leftovers(tmp_path, "a.json")
    assert names(tmp_path) == [".b.json.12.partial", "a.json", "mine.partial"]


def test_a_missing_object_is_none_and_anything_else_names_the_file(tmp_path):
    path = tmp_path / "status.json"
    assert read_json(path) is None
    write_atomically(path, '{"state": "finished"}')
    assert read_json(path) == {"state": "finished"}
    for content in ("", "{", "\xff", "[1]", "3", "[" * 100_000):
        path.write_bytes(content.encode("latin-1"))
        with pytest.raises(ValueError, match=r"status\.json"):
            read_json(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(ValueError, match=r"status\.json cannot be read"):
        read_json(path)
