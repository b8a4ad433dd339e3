"""A data set and a partition rule of one's own, from a folder outside the repository, through Hydra's search path."""

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from fedsaf.data.federated import federate
from fedsaf.tracking.recorder import Recorder
from tests.federation.harness import CONF, LIGHT, run

MODULE = """
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fedsaf.core.types import CountFacts
from fedsaf.data.datasets import LabelledDataset, Source
from fedsaf.data.images import ImageItems, ImageSource
from fedsaf.data.partition.partitioner import Assignment, Partitioner
from fedsaf.data.raw import RawSamples


@dataclass(frozen=True, kw_only=True)
class Npz(ImageSource):
    path: str

    def read(self, seed):
        file = Path(self.path)
        with np.load(file) as arrays:
            items, labels = ImageItems.of(arrays["images"]), arrays["labels"].tolist()
        return RawSamples(name=file.stem, items=items, labels=labels, parts={"all": len(items)}, files=[file])


@dataclass(frozen=True, kw_only=True)
class Rows(Source):
    dim: int

    def load(self, seed, subset=0):
        labels = torch.arange(40) % 2
        return LabelledDataset(
            name="rows", labels=labels, class_names=("a", "b"), groups=None, group_names=(), label_mapping={},
            parts={"all": 40}, fingerprint="0", inputs=labels[:, None].expand(40, self.dim).contiguous(),
            facts=CountFacts(self.dim),
        )


@dataclass(frozen=True, kw_only=True)
class Stripes(Partitioner):
    width: int

    def __call__(self, labels, groups, num_clients, rng):
        order = rng.permutation(len(labels))
        return Assignment([order[np.arange(len(order)) // self.width % num_clients == i] for i in range(num_clients)])
"""


@pytest.fixture
def words(tmp_path, monkeypatch):
    """The module on Python's path, its choices on Hydra's, and a file of data."""
    (tmp_path / "my_parts_of_data.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    for group, name, base, rest in (
        ("dataset", "npz", "digits", "_target_: my_parts_of_data.Npz\npath: ???"),
        ("partition", "stripes", "iid", "_target_: my_parts_of_data.Stripes\nwidth: 3"),
    ):
        (tmp_path / "conf" / group).mkdir(parents=True)
        (tmp_path / "conf" / group / f"{name}.yaml").write_text(f"defaults: [{base}, _self_]\n{rest}\n")
    (tmp_path / "conf" / "dataset" / "rows.yaml").write_text("_target_: my_parts_of_data.Rows\ndim: 3\n")
    labels = np.arange(120) % 3 + 5
    images = np.random.default_rng(0).normal(30 * labels, 10, (8, 8, 120)).clip(0, 255).astype(np.uint8)
    np.savez(tmp_path / "levels.npz", images=images.transpose(2, 0, 1), labels=labels)
    return [f"hydra.searchpath=[file://{tmp_path / 'conf'}]", f"dataset.path={tmp_path / 'levels.npz'}"]


def composed(words):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", overrides=[*words, "partition=stripes"])
    return instantiate(config.dataset), instantiate(config.partition)


def test_a_data_set_and_a_rule_of_ones_own(words, tmp_path):
    source, rule = composed([*words, "dataset=npz", "dataset.max_samples=90", "dataset.image_size=null"])
    data = federate(source.load(1), rule, 4, "stratified", 0.75)
    assert data.dataset.name == "levels"
    assert data.dataset.label_mapping == {"5": 0, "6": 1, "7": 2}
    assert data.dataset.inputs.shape == (90, 1, 8, 8)
    assert data.dataset.subset == {"max_samples": 90, "of": 120}
    assert list(data.dataset.files) == [tmp_path / "levels.npz"]
    assert data.record.facts["rule"] == "Stripes"
    assert data.record.facts["parameters"] == {"seed": 1, "generator": "numpy", "width": 3}
    sizes = [len(train) + len(test) for train, test in zip(data.record.train, data.record.test, strict=True)]
    assert sizes == [24, 24, 21, 21]


def test_rows_of_numbers_come_as_tensors(words):
    source, rule = composed([words[0], "dataset=rows"])
    data = federate(source.load(1), rule, 2, "random", 0.75)
    x, y = next(data.client(1).eval_batches("train", 5))
    assert x.tolist() == [[label] * 3 for label in y.tolist()]
    assert data.dataset.files == ()


def test_they_train_and_are_learnt_from(words, tmp_path):
    own = ["dataset=npz", "dataset.image_size=16", "partition=stripes", "num_clients=2", "rounds=3", "batch_size=10"]
    rest = ["local_epochs=3", "optimizer.lr=0.05", "logger=none", "progress=false", "fabric.threads=1"]
    rows = Recorder(run([*words, *own, *rest, *LIGHT], tmp_path / "run")).rows()
    accuracies = [row["classifier"]["pooled"] for row in rows]
    assert accuracies[-1] >= max(0.6, accuracies[0] + 0.2)
