"""At scale full every experiment is that of its paper: the numbers that papers and public code state, written out."""

from pathlib import Path

import pytest

from fedsaf.core.config import flatten
from fedsaf.reproduction.composer import Composer

COMPOSER = Composer(Path(__file__).resolve().parents[2] / "conf")

FEDSAF = {
    "rounds": 300,
    "num_clients": 20,
    "local_epochs": 5,
    "batch_size": 100,
    "participation_ratio": 1.0,
    "feature_dim": 512,
    "eval_every": 1,
    "optimizer.lr": 0.01,
    "optimizer.momentum": 0.0,
    "optimizer.weight_decay": 0.0,
    "protocol.train_fraction": 0.75,
    "protocol.split": "random",
    "protocol.shuffle": "fixed",
    "partition.alpha": 0.1,
    "partition.seed": 1,
    "partition.min_samples": 40,
    "partition.generator": "public",
    "model_group.name": "HtFE9",
    "dataset.max_samples": None,
}
NATURAL = {key: value for key, value in FEDSAF.items() if not key.startswith(("partition.", "dataset.", "num_clients"))}
FEDTGP = FEDSAF | {"rounds": 2000, "local_epochs": 1, "batch_size": 10, "model_group.name": "HtFE8"}
FEDPROC = {
    "rounds": 100,
    "num_clients": 10,
    "local_epochs": 10,
    "batch_size": 64,
    "participation_ratio": 1.0,
    "feature_dim": 256,
    "eval_every": 1,
    "optimizer.lr": 0.01,
    "optimizer.momentum": 0.9,
    "optimizer.weight_decay": 1e-5,
    "protocol.split": "common",
    "protocol.shuffle": "each_epoch",
    "partition.alpha": 0.5,
    "partition.seed": 0,
    "partition.min_samples": 10,
    "dataset.max_samples": None,
}
MU = "method.mu"
TEXTS = NATURAL | {"model_group.name": "HtFE6-txt", "dataset.vocabulary_from": "all"}
EXPECTED = {
    ("table_1", "method=fedproto"): FEDSAF | {"dataset.name": "cifar10"},
    ("table_1", "method=fedgh"): FEDSAF | {"method.server_epochs": 100},
    ("table_1", "dataset=tiny_imagenet"): FEDSAF | {"dataset.splits": ["train", "valid"], "dataset.image_size": 64},
    ("table_2", "model_group=htfe2"): FEDSAF | {"model_group.name": "HtFE2"},
    ("table_3", "dataset=cifar100"): FEDSAF | {"dataset.name": "cifar100"},
    ("table_4", "scenario=pacs"): NATURAL | {"num_clients": 4, "dataset.name": "pacs", "dataset.max_per_class": None},
    ("table_4", "scenario=domainnet"): NATURAL | {"num_clients": 6, "dataset.name": "domainnet"},
    ("table_5", "scenario=ag_news"): TEXTS | {"num_clients": 20, "partition.alpha": 0.1},
    ("table_5", "scenario=amazon_review"): TEXTS | {"num_clients": 4},
    ("table_5", "scenario=shakespeare"): NATURAL
    | {"num_clients": 118, "model_group.name": "HtFE6-txt", "partition.max_samples_per_client": None},
    ("table_6", "scenario=devices_200"): FEDSAF
    | {"num_clients": 200, "participation_ratio": 0.2, "local_epochs": 1, "batch_size": 10, "dataset.name": "cifar100"},
    ("table_7", "model_group=htm10"): FEDSAF | {"model_group.name": "HtM10"},
    ("table_8", "levels=prototype"): FEDSAF | {"alignment.inst_weight": 0},
    ("table_9", "method=fedgh"): FEDSAF
    | {"rounds": 3, "model_group.name": "HtFE4", "dataset.name": "cifar100", "method.server_epochs": 100},
    ("figure_1", "scenario=homo_shared"): FEDSAF | {"rounds": 50, "num_clients": 9, "model_group.name": "homogeneous"},
    ("figure_5", "alignment.proto_weight=10"): FEDSAF | {"dataset.name": "cifar100", "alignment.proto_weight": 10},
    ("figure_10", "local_epochs=20"): FEDSAF | {"partition.alpha": 0.5, "dataset.name": "cifar100", "local_epochs": 20},
    ("fedtgp_k5", "method=fedtgp"): FEDTGP | {"dataset.name": "cifar100"},
    ("fedtgp_k6_dirichlet", "dataset=tiny_imagenet"): FEDTGP | {"dataset.splits": ["train"]},
    ("fedtgp_k6_dirichlet", "dataset=flowers102"): FEDTGP | {"dataset.splits": ["train", "valid", "test"]},
    ("fedtgp_k6_pathological", "scenario=pathological_tiny_imagenet"): {
        key: value for key, value in FEDTGP.items() if key != "partition.alpha"
    }
    | {"dataset.splits": ["train"], "partition.classes_per_client": 20},
    ("fedtgp_k7_clients", "scenario=half_of_100"): FEDTGP | {"num_clients": 100, "participation_ratio": 0.5},
    ("fedtgp_k9_whole", "dataset=tiny_imagenet"): FEDTGP | {"dataset.splits": ["train"]},
    ("fedtgp_k10_cap", "prototype.max_margin=1"): FEDTGP | {"prototype.max_margin": 1, "prototype.epochs": 100},
    ("fedproc_t2", "scenario=fedproc_cifar10", "method=fedproc"): FEDPROC | {"model_group.name": "MOON-CNN"},
    ("fedproc_t2", "scenario=fedproc_cifar10", "method=moon"): FEDPROC | {MU: 5.0},
    ("fedproc_t2", "scenario=fedproc_cifar100", "method=moon"): FEDPROC | {MU: 1.0},
    ("fedproc_t2", "scenario=fedproc_tiny_imagenet", "method=moon"): FEDPROC | {MU: 1.0},
    ("fedproc_t2", "scenario=fedproc_cifar100", "method=solo"): FEDPROC | {"rounds": 30},
    ("fedproc_t3", "method=moon"): FEDPROC | {MU: 1.0, "dataset.name": "cifar100"},
    ("fedproc_t5", "scenario=fedproc_cifar100"): FEDPROC | {"rounds": 2},
    ("fedproc_t6", "scenario=fedproc_50", "method=moon"): FEDPROC | {MU: 10.0, "num_clients": 50, "rounds": 200},
    ("fedproc_t6", "scenario=fedproc_100", "method=moon"): FEDPROC
    | {MU: 10.0, "num_clients": 100, "rounds": 250, "participation_ratio": 0.2},
    ("fedproc_t6", "scenario=fedproc_100_long", "method=moon"): FEDPROC
    | {MU: 10.0, "num_clients": 100, "rounds": 500, "participation_ratio": 0.2},
}


@pytest.mark.parametrize("words", EXPECTED, ids=" ".join)
def test_at_scale_full_an_experiment_is_that_of_its_paper(words):
    experiment, *own = words
    config = dict(flatten(COMPOSER.compose([f"experiment={experiment}", "scale=full", *own])))
    expected = EXPECTED[words]
    assert {key: config.get(key, "absent") for key in expected} == expected


def test_what_a_paper_does_with_a_method_holds_for_no_other():
    assert COMPOSER.compose(["method=fedgh"])["method"]["server_epochs"] == 1
    frame = ["paper=fedproc", "scenario=fedproc_cifar100"]
    assert COMPOSER.compose([*frame, "method=fedavg"])["rounds"] == 100
    assert COMPOSER.compose(["method=moon"])["method"]["mu"] == 5.0
