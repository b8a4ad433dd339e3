"""The register of differences: every key in which ``protocol=public`` parts from the paper changes a run, and where.

What each behaviour computes is tested beside its part; here a whole federation runs under the preset ``paper``, and
under the same with one key turned to the public side, with half of the clients a round on the hardest partition.
"""

from __future__ import annotations

import json
import re
from functools import reduce

import pytest
from omegaconf import OmegaConf

from fedsaf.tracking.recorder import Recorder
from tests.federation.harness import CONF, TINY, lopsided, origin, run

PAPER, PUBLIC = (
    OmegaConf.to_container(OmegaConf.load(CONF / "protocol" / f"{name}.yaml")) for name in ("paper", "public")
)
SEED = 27
"""Of the run: cohorts are clients 2 and 3, then 0 and 1, then 1 and 2, so that classes appear and disappear."""
MIXED, SINGLE = "[simple_cnn,resnet4]", "[resnet4]"
FEDTGP = ["method=fedtgp", "prototype.epochs=2"]
FEDMRL = ["method=fedmrl", "method.small_dim=8"]
CASES = {
    # key: (words of the method, what of a round's record differs, the first round in which it does)
    "protocol.initialisation": (["method=local"], "loss.cross_entropy", 1),
    "protocol.last_batch": (["method=local"], "num_batches", 2),
    "protocol.prototype_weighting": (["method=fedproto"], "upload_bytes.total", 1),
    "protocol.absent_prototypes": (["method=fedproto"], "num_prototypes", 2),
    "protocol.missing_rows": (["method=fedproto"], "loss.instance_alignment", 2),
    "protocol.bn_buffers": (["method=fedavg"], "upload_bytes.total", 1),
    "method.unit_features": (["method=fedproc"], "loss.cross_entropy", 2),
    "method.prototype_weighting": (["method=fedproc"], "loss.contrastive", 1),
    "method.horizon": (["method=fedproc"], "loss.total", 2),
    "method.initial": (["method=fedproc"], "active.contrastive", 1),
    "method.kl_reduction": (["method=fml"], "loss.distillation", 1),
    "method.detach_teacher": (["method=fml"], "loss.distillation", 1),
    "method.targets": (["method=feddistill"], "loss.logit_distillation", 2),
    "method.freeze": (["method=fedgen"], "active.generated_cross_entropy", 1),
    "method.compression": (["method=fedkd"], "upload_bytes.total", 1),
    "method.reset_projector": (FEDMRL, "loss.total", 3),
    "method.weighting": (FEDMRL, "loss.total", 3),
    "method.collect": (FEDTGP, "server.prototypes/loss_before", 1),
    "alignment.client_term": (FEDTGP, "loss.total", 2),
    "prototype.margin": (FEDTGP, "server.prototypes/margin", 1),
    "prototype.predict_unseen": (FEDTGP, "nearest_prototype.pooled", 1),
    "alignment.axis": (["method=alignfed"], "loss.instance_alignment", 1),
}

GROUPS = {"model_group.final_relu": "res34_htc4", "model_group.feature_logsoftmax": "htfe6_txt"}
"""Keys that change networks, and a group that has them; tests of models show how."""


def rows_of(words, folder):
    group = SINGLE if words[0] in ("method=fedavg", "method=fedproc") else MIXED
    common = ["dataset.num_classes=5", "participation_ratio=0.5", f"seed={SEED}", f"model_group.architectures={group}"]
    return list(Recorder(run([*TINY, *common, *words], folder, alter=lopsided)).rows())


@pytest.fixture(scope="module")
def paper(tmp_path_factory):
    """Return the rows of a method under the paper's preset, each run once."""
    made = {}

    def of(words):
        if words[0] not in made:
            made[words[0]] = rows_of([*words, "protocol=paper"], tmp_path_factory.mktemp("paper") / "run")
        return made[words[0]]

    return of


def test_every_key_that_differs_is_here():
    """The protocol's own, and those in files of methods and constructors that follow its name."""
    found = {f"protocol.{key}" for key in PAPER if PAPER[key] != PUBLIC[key] and key != "name"}
    for path in CONF.glob("*/*.yaml"):
        keys = re.findall(r"(\w+): \$\{case:\$\{protocol.name\}", path.read_text())
        found |= {f"{path.parent.name}.{key}" for key in keys}
    assert found == CASES.keys() | GROUPS.keys()


@pytest.mark.parametrize("key", CASES)
def test_the_public_side_shows(key, paper, tmp_path):
    words, place, first = CASES[key]
    group, name = key.split(".")
    turned = json.dumps(origin([*words, "protocol=public"], None).config[group][name])
    public = rows_of([*words, "protocol=paper", f"{key}={turned}"], tmp_path / "run")
    ours, theirs = ([reduce(lambda part, name: part.get(name, 0), place.split("."), row) for row in rows]
                    for rows in (paper(words), public))  # fmt: skip
    assert [a == b for a, b in zip(ours, theirs, strict=True)].index(False) == first


@pytest.mark.parametrize("key", GROUPS)
def test_groups_follow_the_preset(key):
    group, name = key.split(".")
    words = [f"{group}={GROUPS[key]}", "num_clients=2"]
    found = [origin([*words, f"protocol={side}"], None).config[group][name] for side in ("paper", "public")]
    assert found == [False, True]
