"""What the documents show is accepted: commands, links, and what they say of configuration files."""

import re
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from fedsaf.cli import check_command_line

ROOT = Path(__file__).resolve().parent.parent
README, METHODS, DATA = ROOT / "README.md", ROOT / "docs" / "methods.md", ROOT / "docs" / "data.md"


@pytest.mark.parametrize("path", [README, DATA], ids=lambda path: path.stem)
def test_every_command_of_the_documents_is_accepted(path):
    commands = re.findall(r"^python src/train.py (.*?)(?:\s+#.*)?$", path.read_text(), re.MULTILINE)
    assert len(commands) >= 5
    for command in commands:
        check_command_line(command.split(), ROOT / "conf", "train")


def test_links_and_targets_of_the_documents_exist():
    for path in [*ROOT.glob("*.md"), *sorted((ROOT / "docs").glob("*.md"))]:
        text = path.read_text()
        prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)  # brackets of code are no links
        for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", prose):
            assert (path.parent / link).exists(), f"{path.name}: {link}"
        makefile = (ROOT / "Makefile").read_text()
        for target in re.findall(r"`make ([a-zN-]+)(?!\d)\b", text):
            known = re.search(rf"^{target}:|\b{re.escape(target)}\b", makefile, re.MULTILINE)
            assert known, f"{path.name}: make {target}"


def test_every_method_is_in_the_overview():
    text = METHODS.read_text()
    for path in (ROOT / "conf" / "method").glob("*.yaml"):
        assert f"`{path.stem}`" in text, path.stem


def test_the_table_of_data_sets_says_what_their_configurations_say():
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in DATA.read_text().splitlines()]
    rows = {name: row for row in rows if len(row) == 9 for name in re.findall(r"`(\w+)`", row[0])}
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        for path in (ROOT / "conf" / "dataset").glob("*.yaml"):
            row, config = rows[path.stem], compose("train", overrides=[f"dataset={path.stem}"]).dataset
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
