"""Each walk-through of CONTRIBUTING.md is done as it stands, in a folder outside the repository, by the entry."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from fedsaf.tracking.recorder import Recorder
from tests.federation.harness import LIGHT, TINY

ROOT = Path(__file__).resolve().parent.parent
SECTIONS = dict(
    re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE | re.DOTALL)
)

pytestmark = pytest.mark.xfail(reason="the check of the command line does not look into --config-dir yet")


def follow(section: str, folder: Path) -> Path:
    """Write the files of a section below the folder, run its last command on tiny data, and return the run folder."""
    for block in re.findall(r"```(?:python|yaml)\n(.*?)```", SECTIONS[section], re.DOTALL):
        path = folder / re.match(r"# (my_parts/[\w./]+)", block)[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block)
    (command,) = re.findall(r"^PYTHONPATH=my_parts python src/train.py (.*)$", SECTIONS[section], re.MULTILINE)
    words = [*shlex.split(command), *TINY, *LIGHT, "rounds=2", "results_root=runs"]
    path = os.pathsep.join([str(folder / "my_parts"), str(ROOT / "src")])
    done = subprocess.run(
        [sys.executable, ROOT / "src/train.py", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (finished,) = (folder / "runs").rglob("summary.json")
    return finished.parent


def last_row(folder):
    return Recorder(folder).rows()[-1]


def test_a_loss(tmp_path):
    row = last_row(follow("A loss", tmp_path))
    assert row["round"] == 2
    assert row["loss"]["instance_alignment"] > 0


def test_a_constructor(tmp_path):
    folder = follow("A constructor", tmp_path)
    assert last_row(folder)["loss"]["instance_alignment"] > 0
    assert load_file(folder / "prototypes.safetensors")["values"].norm(dim=1).sub(1).abs().max() < 1e-5


def test_every_walk_through_is_followed():
    followed = set(re.findall(r'follow\("(.*?)"', Path(__file__).read_text()))
    assert followed == {title for title, text in SECTIONS.items() if "python src/train.py" in text}
