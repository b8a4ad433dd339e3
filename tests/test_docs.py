"""What the documents show is run: the examples of adding a loss, a constructor and a method, and the commands."""

import re
import shutil
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from fedsaf.cli import check_command_line
from tests.federation import harness
from tests.federation.harness import LIGHT, TINY, run

ROOT = Path(__file__).resolve().parent.parent
README, METHODS, DATA = ROOT / "README.md", ROOT / "docs" / "methods.md", ROOT / "docs" / "data.md"


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


@pytest.mark.parametrize("path", [README, DATA], ids=lambda path: path.stem)
def test_every_command_of_the_documents_is_accepted(path):
    commands = re.findall(r"^python src/train.py (.*?)(?:\s+#.*)?$", path.read_text(), re.MULTILINE)
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


def test_the_table_of_data_sets_says_what_their_configurations_say():
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in DATA.read_text().splitlines()]
    rows = {name: row for row in rows if len(row) == 9 for name in re.findall(r"`(\w+)`", row[0])}
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        for path in (ROOT / "conf" / "dataset").glob("*.yaml"):
            row, config = rows[path.stem], compose(f"dataset/{path.stem}").dataset
            assert row[1].strip("`") == (config.get("hub_id") or row[1].strip("`"))
            assert ("none known" in row[1]) == (config.get("hub_id", "") is None)
            if "hub_id" in config and config.get("image_size"):
                assert f"{config.image_size} x {config.image_size}" in row[5]
            if "mean" in config:
                assert row[6] == {0.5: "[-1, 1]", 0.0: "[0, 1]"}[config.mean]
            if config.get("form"):
                size = config.max_length if config.form == "tokens" else f"{config.vocabulary_size:,}"
                assert str(size) in row[5] or "synthetic" in path.stem
            assert ("domains" in row[7]) == (config.get("group_column") == "domain")
