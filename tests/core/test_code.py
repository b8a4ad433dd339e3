"""Which files stand behind the parts of a run: found by their dotted paths, without an import."""

import sys

import pytest

from fedsaf.core.code import PACKAGE, code_of


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """A folder on the path; modules in it raise when they are imported."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name, text=""):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"raise RuntimeError\n{text}\n")

    return write


def own(*targets):
    terms = [{"_target_": target} for target in targets]
    return code_of({"method": {"_target_": "fedsaf.federation.method.Method", "objective": {"terms": terms}}})["own"]


def test_an_own_part_is_its_file_and_what_it_imports_from_the_same_folder(parts):
    parts("my_losses.py", "import my_numbers\nimport numpy.linalg\nfrom far_away import thing")
    parts("my_numbers.py", "def scale():\n    from my_constants import pi")
    parts("my_constants.py", "import my_losses")  # in a circle
    parts("unrelated.py")
    parts("far_away/__init__.py")
    found = own("my_losses.Manhattan")
    assert {name: sorted(files) for name, files in found.items()} == {
        "Manhattan": ["my_constants.py", "my_losses.py", "my_numbers.py"]
    }
    assert not {"my_losses", "my_numbers"} & sys.modules.keys()


@pytest.mark.parametrize(
    "line", ["from .near import x", "from . import near", "from pack.near import x", "import pack.near"]
)
def test_parts_in_packages_and_their_neighbours(parts, line):
    parts("pack/__init__.py")
    parts("pack/part.py", line)
    parts("pack/near.py")
    assert sorted(own("pack.part.Part")["Part"]) == ["near.py", "part.py"]


def test_a_path_that_leads_through_a_class_and_one_that_is_handed_over(parts):
    parts("mine.py")
    assert own("mine.Part.from_numbers") == {"from_numbers": own("mine.x")["x"]}
    handed = {"_target_": "hydra.utils.get_method", "path": "mine.fast"}
    assert sorted(code_of({"optimizer": [handed]})["own"]) == ["fast"]


def test_every_byte_counts_and_the_place_does_not(parts, tmp_path):
    parts("one.py", "x = 1")
    before = own("one.Part")["Part"]
    (tmp_path / "one.py").rename(tmp_path / "two.py")
    assert list(own("two.Part")["Part"].values()) == list(before.values())
    parts("two.py", "x = 2")
    assert list(own("two.Part")["Part"].values()) != list(before.values())


def test_what_is_no_own_part():
    assert own("fedsaf.losses.terms.CrossEntropy", "builtins.dict", "functools.partial", "nowhere.Part", "Part") == {}
    code = code_of({"optimizer": {"_target_": "torch.optim.SGD"}, "logger": {"_target_": "nowhere.Logger"}})
    assert (code["own"], list(code["libraries"])) == ({}, ["SGD"])


def test_a_module_that_does_not_parse_has_a_checksum_all_the_same(parts):
    parts("broken.py", "def (")
    assert list(own("broken.Part")["Part"]) == ["broken.py"]


def test_the_code_of_fedsaf_counts_as_far_as_it_changes_a_number(tmp_path, monkeypatch):
    copy = tmp_path / "fedsaf"
    for path in ("losses/terms.py", "tracking/closing.py"):
        (copy / path).parent.mkdir(parents=True)
        (copy / path).write_bytes((PACKAGE / path).read_bytes())
    monkeypatch.setattr("fedsaf.core.code.PACKAGE", copy)
    before = code_of({})["sha256"]
    (copy / "tracking" / "closing.py").write_text("")
    assert code_of({})["sha256"] == before
    (copy / "losses" / "terms.py").rename(copy / "losses" / "others.py")
    assert code_of({})["sha256"] != before
