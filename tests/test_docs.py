"""What the documents show is run: the examples of adding a loss, a constructor and a method, and the commands."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from fedsaf.cli import check_command_line
from tests.federation import harness
from tests.federation.harness import LIGHT, TINY, run

ROOT = Path(__file__).resolve().parent.parent
README, METHODS = ROOT / "README.md", ROOT / "docs" / "methods.md"


def blocks(path, language):
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(), re.DOTALL)


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    """A copy of the configuration with the examples of the documents in it, and their modules importable."""
    conf = shutil.copytree(ROOT / "conf", tmp_path / "conf")
    for block in [*blocks(README, "python"), *blocks(METHODS, "python")]:
        name = re.search(r"^# (?:src/)?(\w+\.py)$", block, re.MULTILINE).group(1)
        (tmp_path / name).write_text(block)
    for block in blocks(README, "yaml"):
        name = re.match(r"# conf/(\S+\.yaml):", block).group(1)
        (conf / name).write_text(block)
    (conf / "method" / "short_features.yaml").write_text(blocks(METHODS, "yaml")[0])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(harness, "CONF", conf)
    yield tmp_path
    for module in ("my_losses", "my_constructors", "my_terms"):
        sys.modules.pop(module, None)


@pytest.mark.parametrize(
    ("words", "recorded"),
    [
        (["alignment=manhattan"], ("loss", "instance_alignment")),
        (["prototype=unit_mean"], ("loss", "instance_alignment")),
        (["method=short_features", "alignment=gcsa"], ("loss", "feature_norm")),
    ],
    ids=["loss", "constructor", "method"],
)
def test_the_examples_of_adding_a_part_run(workspace, words, recorded):
    folder = run([*TINY, *LIGHT, *words, "rounds=2"], workspace / "run")
    last = harness.Recorder(folder).rows()[-1]
    section, name = recorded
    assert last[section][name] > 0
    if "prototype=unit_mean" in words:
        from safetensors.torch import load_file

        assert load_file(folder / "prototypes.safetensors")["values"].norm(dim=1).sub(1).abs().max() < 1e-5


def test_every_command_of_the_readme_is_accepted():
    commands = re.findall(r"^python src/train.py (.*?)(?:\s+#.*)?$", README.read_text(), re.MULTILINE)
    assert len(commands) >= 5
    for command in commands:
        check_command_line(command.split(), ROOT / "conf", "train")


def test_links_and_targets_of_the_documents_exist():
    for path in [README, *sorted((ROOT / "docs").glob("*.md"))]:
        text = path.read_text()
        for link in re.findall(r"\]\(([^)#]+)\)", text):
            assert (path.parent / link).exists(), f"{path.name}: {link}"
        for target in re.findall(r"`make ([a-z-]+)", text):
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), (
                f"{path.name}: make {target}"
            )


def test_every_method_is_in_the_overview():
    text = METHODS.read_text()
    for path in (ROOT / "conf" / "method").glob("*.yaml"):
        assert f"`{path.stem}`" in text, path.stem
