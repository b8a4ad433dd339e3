import io
import json
import pickle
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from fedsaf.data.datasets import LabelledDataset, OrderedSplit
from fedsaf.data.federated import Validation, federate
from fedsaf.data.partition.label_shift import Dirichlet, Pathological
from fedsaf.data.partition.partitioner import Assignment, Partitioner
from fedsaf.data.partition.quantity_shift import IID
from fedsaf.data.partition.record import PartitionRecord
from fedsaf.data.partition.report import partition_picture, partition_table
from fedsaf.data.sources.embedded import Synthetic
from tests.data.recipe import make

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("split", ["stratified", "random"])
@pytest.mark.parametrize("generator", ["numpy", "public"])
def test_parts_of_all_clients_are_disjoint_and_complete(split, generator):
    record = make(split=split, generator=generator).record
    everything = np.concatenate([*record.train, *record.test])
    assert np.array_equal(np.sort(everything), np.arange(500))
    assert record.train_counts.sum() + record.test_counts.sum() == 500
    assert record.train_counts.sum(1).tolist() == [len(a) for a in record.train]


def test_counts_are_those_of_the_labels():
    data = make()
    for part, counts in ((data.record.train, data.record.train_counts), (data.record.test, data.record.test_counts)):
        for own, row in zip(part, counts, strict=True):
            assert data.dataset.labels[own].bincount(minlength=10).tolist() == row.tolist()


def test_hash_is_the_same_in_a_fresh_process_and_after_other_work():
    here = make().record.hash
    np.random.seed(99)
    torch.manual_seed(99)
    make(seed=3)
    assert make().record.hash == here
    code = (
        "import fedsaf.data.sources.image_tables, sys; from tests.data.recipe import make;"
        "print(make().record.hash, 'datasets' in sys.modules)"
    )
    env = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PYTHONHASHSEED": "7"}
    there = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert there.stdout.split() == [here, "False"]  # and embedded data import no hub library


def test_hash_sees_seed_split_order_and_boundary():
    record = make().record
    assert make(seed=2).record.hash != record.hash
    assert make(split="random").record.hash != record.hash
    fields = {k: v for k, v in record.__dict__.items() if k != "hash"}
    swapped = PartitionRecord(**{**fields, "train": [record.train[0][::-1], *record.train[1:]]})
    assert swapped.hash != record.hash
    moved = [np.append(record.train[0], record.test[0][:1]), *record.train[1:]]
    cut = [record.test[0][1:], *record.test[1:]]
    assert PartitionRecord(**{**fields, "train": moved, "test": cut}).hash != record.hash


def test_unseen_test_classes_are_counted():
    assert make(alpha=0.3).record.unseen.sum() == 0
    record = make(alpha=0.3, split="random").record
    expected = [len(set(np.flatnonzero(b)) - set(np.flatnonzero(a))) for a, b in
                zip(record.train_counts, record.test_counts, strict=True)]  # fmt: skip
    assert record.unseen.tolist() == expected
    assert sum(expected) > 0
    clients = sum(u > 0 for u in expected)
    assert f"{clients} clients are tested on classes they never train on ({sum(expected)} pairs)" in record.notes


def test_one_sample_clients_train_and_are_named():
    data = federate(make().dataset, IID(seed=1, generator="numpy"), 500, "stratified", 0.75)
    assert [len(a) for a in data.record.train] == [1] * 500
    assert any(note.startswith("clients without a test part: 0, 1, 2") for note in data.record.notes)
    assert data.client(3).num_test == 0
    assert list(data.client(3).eval_batches("test", 10)) == []


def test_moved_and_unused_samples_are_noted():
    assert f"{make().record.facts['moved']} samples were moved" in make().record.notes[0]
    rule = Pathological(classes_per_client=1, balanced=True, min_samples=1, seed=1, generator="numpy")
    record = federate(make().dataset, rule, 3, "stratified", 0.75).record
    assert record.facts["unused"] == 350
    assert "350 samples are held by no client" in record.notes
    assert (record.train_counts > 0).sum(1).tolist() == [1, 1, 1]


def two_parts(dataset):
    return replace(dataset, parts={"train": 400, "valid": 60, "test": 40})


def test_common_test_set():
    dataset = two_parts(make().dataset)
    rule = Dirichlet(alpha=0.5, min_samples=10, max_tries=1000, repair=False, seed=0, generator="public")
    record = federate(dataset, rule, 10, "common", 0.75).record
    assert np.array_equal(np.sort(np.concatenate(record.train)), np.arange(400))
    assert all(np.array_equal(test, np.arange(400, 500)) for test in record.test)
    assert min(map(len, record.train)) >= 10
    rng = rule.rng()
    own = rule(dataset.labels[:400].numpy(), None, 10, rng).indices[0]
    rng.shuffle(own)  # MOON's code shuffles each client's list in turn
    assert record.train[0].tolist() == own.tolist()
    with pytest.raises(ValueError, match="needs an official test part"):
        federate(make().dataset, rule, 10, "common", 0.75)


def test_arguments_are_checked():
    dataset, rule = make().dataset, IID(seed=1, generator="numpy")
    with pytest.raises(ValueError, match="split='stratify'.*stratified, random or common"):
        federate(dataset, rule, 5, "stratify", 0.75)
    for fraction in (0, 1, 1.5):
        with pytest.raises(ValueError, match="train_fraction"):
            federate(dataset, rule, 5, "random", fraction)


def test_save_and_load(tmp_path):
    record = make().record
    record.save(tmp_path)
    back = PartitionRecord.load(tmp_path)
    assert back.hash == record.hash
    assert back.facts == record.facts
    assert np.array_equal(back.test_counts, record.test_counts)
    assert back.notes == record.notes
    content = json.loads((tmp_path / "partition.json").read_text())
    assert content["hash"] == record.hash
    assert content["parameters"]["alpha"] == 0.05
    assert content["fingerprint"] == make().dataset.fingerprint
    assert content["sizes"]["train"] == [len(a) for a in record.train]
    (tmp_path / "partition.json").write_text(json.dumps({**content, "hash": "0" * 64}))
    with pytest.raises(ValueError, match="hash"):
        PartitionRecord.load(tmp_path)


def test_table_prints_what_the_record_holds():
    record = make().record
    console = Console(width=160, record=True, file=io.StringIO())
    table = partition_table(record)
    console.print(table)
    text = console.export_text()
    assert record.hash[:12] in text
    assert "alpha=0.05" in text
    assert table.row_count == record.num_clients + 1
    cells = [list(column.cells) for column in table.columns]
    assert cells[1][:-1] == [str(len(a)) for a in record.train]
    assert cells[2][:-1] == [str(len(a)) for a in record.test]
    assert (cells[1][-1], cells[2][-1]) == (str(record.train_counts.sum()), str(record.test_counts.sum()))
    top = int(np.argmax(record.train_counts[0] + record.test_counts[0]))
    seen = [
        f"{(own > 0).sum()}|{(test > 0).sum()}"
        for own, test in zip(record.train_counts, record.test_counts, strict=True)
    ]
    assert cells[3][:-1] == seen
    assert cells[5][0].plain.startswith(f"{top} {record.train_counts[0, top]}|{record.test_counts[0, top]}")


@pytest.mark.parametrize(("num_clients", "classes"), [(1, 1), (20, 10), (200, 200)])
def test_picture(tmp_path, num_clients, classes):
    source = Synthetic(image_size=1, mode="L", max_samples=None, max_per_class=None, frozen_crop=False,
                       memory_limit_gib=4, mean=0.5, std=0.5, num_samples=2000,
                       num_classes=classes, channels=1, noise=0.0, group_names=None)  # fmt: skip
    record = federate(source.load(1), IID(seed=1, generator="numpy"), num_clients, "random", 0.75).record
    partition_picture(record, tmp_path / "partition.png")
    with Image.open(tmp_path / "partition.png") as image:
        assert min(image.size) > 300
        assert len(np.unique(np.asarray(image.convert("L")))) > 10


def test_data_travels_and_moves():
    data = make()
    back = pickle.loads(pickle.dumps(data))
    assert back.record.hash == data.record.hash
    assert torch.equal(back.dataset.inputs, data.dataset.inputs)
    rgb = Synthetic(image_size=4, mode="auto", max_samples=None, max_per_class=None, frozen_crop=False,
                    memory_limit_gib=4, mean=0.5, std=0.5, num_samples=40, num_classes=2,
                    channels=3, noise=5.0, group_names=None).load(1)  # fmt: skip
    plain = federate(rgb, IID(seed=1, generator="numpy"), 2, "random", 0.75)
    last = plain.to("cpu", channels_last=True)
    for (x, y), (u, v) in zip(
        plain.client(1).eval_batches("train", 4), last.client(1).eval_batches("train", 4), strict=True
    ):
        assert torch.equal(x, u)
        assert torch.equal(y, v)
        assert x.is_contiguous()
        assert u.is_contiguous(memory_format=torch.channels_last)


def overlapping(groups):
    plain = make().dataset
    groups = torch.tensor(groups)
    return LabelledDataset(
        **{f.name: getattr(plain, f.name) for f in fields(plain)}
        | {"labels": plain.labels[: len(groups)], "inputs": plain.inputs[: len(groups)], "groups": groups}
        | {"group_names": ("a", "b"), "own_split": OrderedSplit(train_fraction=0.5, gap=2)}
    )


def test_samples_that_overlap_are_split_by_order_whatever_the_protocol_says():
    data = federate(overlapping([0] * 10 + [1] * 20), Halves(seed=1, generator="numpy"), 2, "random", 0.75)
    assert [own.tolist() for own in data.record.train] == [list(range(5)), list(range(10, 20))]
    assert [own.tolist() for own in data.record.test] == [[7, 8, 9], list(range(22, 30))]
    assert {"split": "ordered", "train_fraction": 0.5, "gap": 2}.items() <= data.record.facts.items()


@pytest.mark.parametrize("groups", [[0] * 5 + [1] * 25, [0, 1] * 15])
def test_samples_that_overlap_stay_with_their_user(groups):
    with pytest.raises(ValueError, match="overlap.*client 0 does not; choose partition=by_user"):
        federate(overlapping(groups), Halves(seed=1, generator="numpy"), 2, "random", 0.75)


def test_what_is_learnt_from_the_data_is_learnt_from_the_training_parts():
    seen = []

    class Spy(LabelledDataset):
        def fitted(self, train_rows):
            seen.append(train_rows)
            return self

    plain = make().dataset
    spy = Spy(**{f.name: getattr(plain, f.name) for f in fields(plain)})
    data = federate(spy, IID(seed=1, generator="numpy"), 4, "stratified", 0.75)
    assert seen[0].tolist() == sorted(np.concatenate(data.record.train).tolist())
    held = federate(spy, IID(seed=1, generator="numpy"), 4, "stratified", 0.75, Validation(0, 4, 1))
    assert seen[1].tolist() == sorted(np.concatenate(held.record.train).tolist())
    assert not set(seen[1].tolist()) & set(np.concatenate(held.record.test).tolist())


class Halves(Partitioner):
    """Two clients: the first ten samples, the others."""

    def __call__(self, labels, groups, num_clients, rng):
        return Assignment([np.arange(10), np.arange(10, len(labels))])


def folds_of(fold, folds=3, **options):
    return make(validation=Validation(0, folds, fold), **options).record


@pytest.mark.parametrize("split", ["stratified", "random"])
def test_a_held_out_fold_comes_from_the_training_part_and_nobody_sees_the_test_part(split):
    whole = make(split=split).record
    held = []
    for fold in range(3):
        record = folds_of(fold, split=split)
        for client in range(20):
            train, scored = record.train[client].tolist(), record.test[client].tolist()
            own = whole.train[client].tolist()
            assert not set(train) & set(scored)
            assert sorted([*train, *scored]) == sorted(own)
            assert train == [sample for sample in own if sample in train], "in training order"
            assert not set(train + scored) & set(whole.test[client].tolist())
        held.append(record.test)
        assert record.facts["validation"] == {"subset": 0, "folds": 3, "fold": fold}
        assert f"scored on held-out fold {fold} of the training parts; nobody sees the test parts" in record.notes
        assert record.test_counts.sum() == sum(map(len, record.test))
    for client in range(20):
        together = np.concatenate([scored[client] for scored in held])
        assert sorted(together.tolist()) == sorted(whole.train[client].tolist()), (
            "every training sample is held out once"
        )
        sizes = [len(scored[client]) for scored in held]
        assert max(sizes) - min(sizes) <= 1


def test_folds_have_the_same_share_of_every_class():
    whole = make(alpha=100.0).record
    for fold in range(3):
        counts = folds_of(fold, alpha=100.0).test_counts
        assert (np.abs(counts - whole.train_counts / 3) < 1.34).all()


def test_without_validation_nothing_is_said_of_it():
    record = make().record
    assert "validation" not in record.facts
    assert not any("held-out" in note for note in record.notes)


@pytest.mark.parametrize(
    ("folds", "fold", "message"),
    [(1, 0, "folds=1; expected at least 2"), (3, 3, "0 to 2"), (None, 0, "set validation.subset=1")],
)
def test_folds_are_checked(folds, fold, message):
    with pytest.raises(ValueError, match=message):
        Validation(0, folds, fold)


def test_a_subset_is_checked_and_its_test_parts_are_scored():
    with pytest.raises(ValueError, match="validation.subset=-1; expected at least 0"):
        Validation(-1, 4, 0)
    whole, other = make().record, make(validation=Validation(1, None, 0)).record
    assert [part.tolist() for part in other.test] == [part.tolist() for part in whole.test]
    assert other.facts["validation"] == {"subset": 1, "folds": None, "fold": 0}
    assert "samples of subset 1, which no run outside of validation sees" in other.notes
    assert not any("held-out" in note for note in other.notes)


def test_samples_that_overlap_have_no_unseen_fold():
    data, rule = overlapping([0] * 10 + [1] * 20), Halves(seed=1, generator="numpy")
    with pytest.raises(
        ValueError, match="validation: neighbouring samples of .* overlap, so no fold of them is unseen"
    ):
        federate(data, rule, 2, "random", 0.75, Validation(0, 3, 0))
