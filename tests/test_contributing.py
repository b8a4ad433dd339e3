"""Each walk-through of CONTRIBUTING.md is done as it stands, in a folder outside the repository, by the entries."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from safetensors.torch import load_file

from fedsaf.core.files import read_json
from fedsaf.tracking.recorder import Recorder
from tests.federation.harness import LIGHT, TINY

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))


def follow(section: str, folder: Path) -> Path:
    """Write the files of a section below the folder, run its commands on tiny data, and return the run folder."""
    for block in re.findall(r"```(?:python|yaml)\n(.*?)```", SECTIONS[section], re.DOTALL):
        path = folder / re.search(r"^# (my_parts/[\w./]+)", block, re.MULTILINE)[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block)
    (commands,) = re.findall(r"```bash\n(.*?)```", SECTIONS[section], re.DOTALL)
    for line in commands.splitlines():
        perform(shlex.split(line, comments=True), folder)
    (summary,) = (folder / "runs").rglob("summary.json")
    return summary.parent


def perform(words: list[str], folder: Path) -> None:
    """Run one command as the document has it, an entry at the size of these tests."""
    environment = dict(os.environ)
    if words[0].startswith("PYTHONPATH="):
        environment["PYTHONPATH"] = os.pathsep.join([words.pop(0).partition("=")[2], str(ROOT / "src")])
    assert words.pop(0) == "python"
    if words[0].startswith("src/"):
        words[0] = str(ROOT / words[0])
        chosen = [re.match(r"[\w.]*", word)[0] for word in words]
        words += [
            word
            for word in (*TINY, *LIGHT, "rounds=2", "results_root=runs")
            if not any(re.match(rf"{key}\b", word) for key in chosen if key)
        ]
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr


def last_losses(folder: Path) -> dict[str, float]:
    row = Recorder(folder).rows()[-1]
    assert row["round"] == 2
    return row["loss"]


def test_a_loss(tmp_path):
    assert last_losses(follow("A loss", tmp_path))["instance_alignment"] > 0


def test_a_constructor(tmp_path):
    folder = follow("A constructor", tmp_path)
    assert last_losses(folder)["instance_alignment"] > 0
    assert load_file(folder / "prototypes.safetensors")["values"].norm(dim=1).sub(1).abs().max() < 1e-5


def test_a_data_set(tmp_path):
    folder = follow("A data set", tmp_path)
    assert last_losses(folder)["cross_entropy"] > 0
    assert read_json(folder / "partition.json")["dataset"] == "levels"


def test_a_partitioner(tmp_path):
    folder = follow("A partitioner", tmp_path)
    assert last_losses(folder)["cross_entropy"] > 0
    counts = read_json(folder / "partition.json")["counts"]
    for train, test in zip(counts["train"], counts["test"], strict=True):
        assert sum(a + b == 0 for a, b in zip(train, test, strict=True)) == 2


def test_a_method(tmp_path):
    folder = follow("A method", tmp_path)
    assert last_losses(folder)["mapped_alignment"] > 0
    assert len(load_file(folder / "prototypes.safetensors")["values"]) == 4


def test_every_walk_through_is_followed():
    followed = set(re.findall(r'follow\("(.*?)"', Path(__file__).read_text()))
    assert followed == {title for title, text in SECTIONS.items() if "python src/train.py" in text}
