"""Learning, not only running: on real images every method ends clearly above its own untrained accuracy."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from fedsaf.tracking.recorder import Recorder
from tests.federation.harness import run

EXPERIMENTS = Path(__file__).resolve().parents[2] / "conf" / "experiment"
COMMON = ("logger=none", "fabric.accelerator=cpu", "fabric.threads=1", "progress=false")
NAMES = ("methods_heterogeneous", "methods_fedtsp", "methods_homogeneous")
CASES = [
    (name, method)
    for name in NAMES
    for method in OmegaConf.load(EXPERIMENTS / f"{name}.yaml").hydra.sweeper.params.method.split(",")
]


@pytest.mark.slow
@pytest.mark.parametrize(("experiment", "method"), CASES)
def test_it_ends_above_its_untrained_accuracy(experiment, method, tmp_path):
    words = [*COMMON, f"experiment={experiment}", f"method={method}", "seed=0"]
    if experiment == "methods_homogeneous":
        words.append("model_group=moon_cnn")
    rows = Recorder(run(words, tmp_path / "run")).rows()
    # Chance is 10 %; 451 test images make a difference of 20 points nine standard errors.
    assert rows[-1]["classifier"]["pooled"] > rows[0]["classifier"]["pooled"] + 0.2


def test_every_method_is_in_a_learning_experiment():
    """A new recipe is not left out; ``prototype`` is the one the fedsaf recipes are made of."""
    names = {path.stem for path in (EXPERIMENTS.parent / "method").glob("*.yaml")}
    assert names - {method for _, method in CASES} == {"prototype"}


def test_the_server_loss_of_fedtgp_falls_in_every_round(tmp_path):
    words = [*COMMON, "method=fedtgp", "dataset.max_samples=300", "num_clients=3", "rounds=3", "prototype.epochs=20"]
    rows = Recorder(run(words, tmp_path / "run")).rows()[1:]
    assert all(row["server"]["prototypes/loss"] < row["server"]["prototypes/loss_before"] for row in rows)
