"""Every file of conf/alignment builds its losses and has the common keys, so that any choice takes any override."""

from pathlib import Path

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from fedsaf.prototypes.class_table import ClassTable

FOLDER = Path(__file__).parents[2] / "conf" / "alignment"
FILES = sorted(FOLDER.glob("*.yaml"))
KEYS = {
    "loss",
    "inst_loss",
    "weights",
    "proto_weight",
    "inst_weight",
    "uniformity_weight",
    "temperature",
    "missing_rows",
    "weight_schedule",
}
SWITCHES = {"fedtgp": {"client_term"}, "alignfed": {"axis"}}
"""Keys beside the common ones."""


def composed(path):
    own = OmegaConf.load(path)
    bases = [composed(FOLDER / f"{name}.yaml") for name in own.pop("defaults", []) if name != "_self_"]
    return OmegaConf.merge(*bases, own)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_builds(path):
    protocol = OmegaConf.load(FOLDER.parent / "protocol" / "sound.yaml")
    config = OmegaConf.create({"alignment": composed(path), "protocol": protocol})
    assert set(config.alignment) - SWITCHES.get(path.stem, set()) == KEYS
    assert config.alignment.missing_rows == "skip"
    table = ClassTable(torch.eye(4), torch.ones(4, dtype=torch.bool))
    rows, labels = torch.randn(4, 4, generator=torch.Generator().manual_seed(0)), torch.arange(4)
    values = [
        instantiate(loss)(rows, table.values, labels, table)
        for loss in (config.alignment.loss, config.alignment.inst_loss)
    ]
    assert torch.equal(*values) is (path.stem != "fedtgp")  # whose levels have different losses
    assert (values[0] > 0) == (path.stem != "none")


def test_levels_can_be_set_apart():
    config = OmegaConf.create({"alignment": composed(FOLDER / "gcsa.yaml"), "protocol": {"missing_rows": "skip"}})
    config.alignment.inst_loss = {"_target_": "fedsaf.losses.alignment.RCSA"}
    assert type(instantiate(config.alignment.loss)).__name__ == "GCSA"
    assert type(instantiate(config.alignment.inst_loss)).__name__ == "RCSA"
