"""The real image sets: class names and their order, counts, sizes, colours, domains. Needs DATA_ROOT."""

import os
from collections import Counter
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from PIL import Image

from fedsaf.data.decode import decoded_blocks
from fedsaf.data.federated import federate
from fedsaf.data.partition.group_shift import ByDomain

CONF = Path(__file__).parents[3] / "conf"


@pytest.fixture
def source(monkeypatch):
    """Return the source of a configuration; the set must lie below DATA_ROOT."""

    def make(folder, *words, choice=None):
        root = Path(os.environ.get("DATA_ROOT", "")).expanduser()
        if not os.environ.get("DATA_ROOT") or not any((root / folder).glob("*.parquet")):
            pytest.skip(f"DATA_ROOT has no {folder}")
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose("train", overrides=[f"dataset={choice or folder}", *words])
        return instantiate(config["dataset"])

    return make


def counts(labels):
    return sorted(Counter(labels).values())


def test_cifar10(source):
    raw = source("cifar10").read(1)
    names = "airplane, automobile, bird, cat, deer, dog, frog, horse, ship, truck"
    assert ", ".join(raw.class_names) == names
    assert raw.parts == {"train": 50_000, "test": 10_000}
    assert np.bincount(raw.labels[:50_000]).tolist() == [5_000] * 10
    assert np.bincount(raw.labels[50_000:]).tolist() == [1_000] * 10
    data = source("cifar10", "dataset.max_samples=2000").load(1)
    assert data.facts.shape == (3, 32, 32)
    assert data.facts.mean == data.facts.std == (0.5,) * 3
    assert data.subset == {"max_samples": 2000, "of": 60_000}
    pixels = data.inputs.double() / 255  # FedProc's statistics
    assert pixels.mean((0, 2, 3)).tolist() == pytest.approx([0.4914, 0.4824, 0.4467], abs=0.01)
    assert pixels.std((0, 2, 3)).tolist() == pytest.approx([0.2471, 0.2435, 0.2616], abs=0.01)


def test_cifar100_takes_the_fine_labels(source):
    raw = source("cifar100").read(1)
    assert len(raw.class_names) == 100
    assert list(raw.class_names) == sorted(raw.class_names)
    assert (raw.class_names[0], raw.class_names[26], raw.class_names[-1]) == ("apple", "crab", "worm")
    assert np.bincount(raw.labels).tolist() == [600] * 100
    coarse = source("cifar100", "dataset.label_column=coarse_label").read(1)
    assert np.bincount(coarse.labels).tolist() == [3_000] * 20
    with pytest.raises(ValueError, match=r"fine_label, coarse_label.*dataset\.label_column"):
        source("cifar100", "dataset.label_column=null").read(1)
    data = source("cifar100", "dataset.max_samples=3000").load(1)
    pixels = data.inputs.double() / 255  # statistics that the header of the configuration names
    assert pixels.mean((0, 2, 3)).tolist() == pytest.approx([0.5071, 0.4865, 0.4409], abs=0.01)
    assert pixels.std((0, 2, 3)).tolist() == pytest.approx([0.2673, 0.2564, 0.2762], abs=0.01)


def test_tiny_imagenet_is_rgb_throughout(source):
    raw = source("tiny_imagenet").read(1)
    assert len(raw.class_names) == 200
    assert list(raw.class_names) == sorted(raw.class_names)
    assert all(name[0] == "n" and name[1:].isdigit() for name in raw.class_names)
    assert list(raw.parts) == ["train", "valid"]
    assert np.bincount(raw.labels[raw.parts["train"] :]).tolist() == [50] * 200
    rows = list(raw.items.rows(np.arange(len(raw.items))))
    grey = [row for row in rows if Image.open(BytesIO(row.item)).mode == "L"]
    assert len(grey) == 541
    pixels = np.concatenate(list(decoded_blocks(grey, (3, 64, 64), resize=False)))
    assert (pixels == pixels[:, :1]).all()
    assert pixels.std() > 30


DOMAINS = {
    "pacs": {"art_painting": 2048, "cartoon": 2344, "photo": 1670, "sketch": 3929},
    "office_caltech10": {"amazon": 958, "caltech10": 1123, "dslr": 157, "webcam": 295},
}
CLASSES = {
    "pacs": "dog elephant giraffe guitar horse house person",
    "office_caltech10": "backpack bike calculator headphones keyboard laptop monitor mouse mug projector",
}


@pytest.mark.parametrize("name", DOMAINS)
def test_domains_come_in_alphabetical_order_one_per_client(source, name):
    raw = source(name).read(1)
    assert Counter(raw.groups) == DOMAINS[name]
    assert raw.class_names == tuple(CLASSES[name].split())
    data = source(name, "dataset.max_per_class=3").load(1)
    assert data.group_names == tuple(DOMAINS[name])
    assert data.facts.shape == (3, 64, 64)
    assert (data.facts.mean, data.facts.std) == ((0.0,) * 3, (1.0,) * 3)
    cells = Counter(zip(data.groups.tolist(), data.labels.tolist(), strict=True))
    assert set(cells.values()) == {3}
    assert len(cells) == len(DOMAINS[name]) * data.num_classes
    assert data.subset == {"max_per_class": 3, "of": sum(DOMAINS[name].values())}
    rule = ByDomain(seed=1, generator="numpy", clients_per_domain=1)
    record = federate(data, rule, len(DOMAINS[name]), "random", 0.75).record
    for client, (train, test) in enumerate(zip(record.train, record.test, strict=True)):
        assert set(data.groups[np.concatenate([train, test])].tolist()) == {client}
    assert record.facts["subset"] == data.subset


def test_frozen_crops_of_pacs_are_drawn_once(source):
    words = ("dataset.max_per_class=2", "dataset.frozen_crop=true")
    plain, cropped = source("pacs", words[0]).load(1), source("pacs", *words).load(1)
    assert cropped.inputs.shape == plain.inputs.shape
    assert (cropped.inputs != plain.inputs).flatten(1).any(1).double().mean() > 0.9
    assert cropped.fingerprint == source("pacs", *words).load(1).fingerprint


def test_mnist_as_a_table_of_ones_own(source):
    path = Path(os.environ.get("DATA_ROOT", "")) / "mnist_t10k"
    data = source("mnist_t10k", f"dataset.path={path}", "dataset.image_size=null", choice="parquet").load(1)
    assert data.inputs.shape == (10_000, 1, 28, 28)
    assert data.labels.bincount().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert data.labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert float(data.inputs.double().mean() / 255) == pytest.approx(0.1325, abs=5e-4)
    assert data.parts == {"test": 10_000}
