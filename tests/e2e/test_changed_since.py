"""The same command after its data or own code changed: said before old numbers are shown, refused on a resume."""

import json
import os

import numpy as np
import pytest
from PIL import Image

from tests.e2e.processes import end, folders, start

WORDS = (
    "dataset=imagefolder",
    "dataset.path=pictures",
    "partition=iid",
    "model_group.architectures=[simple_cnn]",
    "alignment=cosine",
    "alignment.loss._target_=own_losses.Manhattan",
    "num_clients=2",
    "rounds=1",
    "feature_dim=8",
    "batch_size=8",
    "fabric.accelerator=cpu",
    "fabric.threads=1",
    "logger=none",
)
SAID = ("warning:", "note:")
LOSS = """
from own_scale import scale


class Manhattan:
    def __call__(self, rows, targets, labels, table):
        return scale * (rows - targets).abs().sum()
"""


@pytest.fixture
def command(tmp_path):
    """Own pictures and an own loss; return the command, which gives the lines it prints."""
    rng = np.random.default_rng(0)
    for name, level in (("dark", 60), ("light", 190)):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for i in range(12):
            noise = rng.normal(level, 20, (16, 16)).clip(0, 255).astype(np.uint8)
            Image.fromarray(noise).save(tmp_path / "pictures" / name / f"{i}.png")
    (tmp_path / "code").mkdir()
    (tmp_path / "code/own_losses.py").write_text(LOSS)
    (tmp_path / "code/own_scale.py").write_text("scale = 1.0\n")

    def lines(*words, code=0):
        path = os.pathsep.join(filter(None, [str(tmp_path / "code"), os.environ.get("PYTHONPATH")]))
        return end(start(tmp_path / "runs", [*WORDS, *words], PYTHONPATH=path), code).splitlines()

    return lines


def test_changed_data_and_an_edited_loss_are_said_and_force_runs_anew(command, tmp_path):
    command()
    (folder,) = folders(tmp_path / "runs")
    shown = (folder / "summary.json").read_bytes()
    picture, scale = tmp_path / "pictures/dark/3.png", tmp_path / "code/own_scale.py"

    os.utime(picture)  # as after a copy
    output = command()
    assert "is finished already" in output[0]
    assert not [line for line in output if line.startswith(SAID)]

    before = picture.read_bytes()
    Image.fromarray(np.full((16, 16), 250, np.uint8)).save(picture)
    (line,) = [line for line in command() if line.startswith(SAID)]
    assert line == "warning: the data (pictures/dark/3.png) changed since this run was made; force=true runs it anew"

    picture.write_bytes(before)
    scale.write_text("scale = 100.0\n")
    (line,) = [line for line in command() if line.startswith(SAID)]
    assert line.startswith("warning: the code of Manhattan (own_scale.py) changed since this run was made; force=true ")
    assert (folder / "summary.json").read_bytes() == shown

    command("force=true")
    assert json.loads((folder / "summary.json").read_bytes()) != json.loads(shown)
    assert not [line for line in command() if line.startswith(SAID)]


def test_a_run_that_was_not_finished_does_not_go_on_with_another_loss(command, tmp_path):
    command("rounds=2")
    (folder,) = folders(tmp_path / "runs")
    status = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps(status | {"state": "interrupted"}))
    (tmp_path / "code/own_scale.py").write_text("scale = 100.0\n")
    refusal = command("rounds=2", code=1)[-1]
    assert refusal.startswith("error: the code of Manhattan (own_scale.py) changed since ")
    assert refusal.endswith("or force=true to start it anew")
