import pickle
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedsaf.data.datasets import LabelledDataset, OrderedSplit
from fedsaf.data.federated import Validation, federate
from fedsaf.data.partition.label_shift import Dirichlet
from fedsaf.data.partition.partitioner import Assignment, Partitioner
from fedsaf.data.partition.quantity_shift import IID
from fedsaf.data.sources.embedded import Synthetic
from tests.data.recipe import make, source_of

ROOT = Path(__file__).parents[2]
ALIKE = IID(seed=1, generator="numpy")


@pytest.mark.parametrize("split", ["stratified", "random"])
@pytest.mark.parametrize("generator", ["numpy", "public"])
def test_parts_of_all_clients_are_disjoint_and_complete(split, generator):
    record = make(split=split, generator=generator).record
    assert np.array_equal(np.sort(np.concatenate([*record.train, *record.test])), np.arange(500))
    assert record.train_counts.sum() + record.test_counts.sum() == 500


def test_counts_are_those_of_the_labels():
    data = make()
    for part, counts in ((data.record.train, data.record.train_counts), (data.record.test, data.record.test_counts)):
        assert [data.dataset.labels[own].bincount(minlength=10).tolist() for own in part] == counts.tolist()


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


def test_one_sample_clients_train_and_are_named():
    data = federate(make().dataset, ALIKE, 500, "stratified", 0.75)
    assert [len(a) for a in data.record.train] == [1] * 500
    assert any(note.startswith("clients without a test part: 0, 1, 2") for note in data.record.notes)
    assert data.client(3).num_test == 0
    assert list(data.client(3).eval_batches("test", 10)) == []


def test_common_test_set():
    dataset = replace(make().dataset, parts={"train": 400, "valid": 60, "test": 40})
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
    dataset = make().dataset
    with pytest.raises(ValueError, match="split='stratify'.*stratified, random or common"):
        federate(dataset, ALIKE, 5, "stratify", 0.75)
    for fraction in (0, 1, 1.5):
        with pytest.raises(ValueError, match="train_fraction"):
            federate(dataset, ALIKE, 5, "random", fraction)


def test_data_travels_and_moves():
    data = make()
    back = pickle.loads(pickle.dumps(data))
    assert back.record.hash == data.record.hash
    assert torch.equal(back.dataset.inputs, data.dataset.inputs)
    plain = federate(source_of(Synthetic, image_size=4).load(1), ALIKE, 2, "random", 0.75)
    last = plain.to("cpu", channels_last=True)
    batches = (each.client(1).eval_batches("train", 4) for each in (plain, last))
    for (x, y), (u, v) in zip(*batches, strict=True):
        assert torch.equal(x, u)
        assert torch.equal(y, v)
        assert x.is_contiguous()
        assert u.is_contiguous(memory_format=torch.channels_last)


class Halves(Partitioner):
    """Two clients: the first ten samples, the others."""

    def __call__(self, labels, groups, num_clients, rng):
        return Assignment([np.arange(10), np.arange(10, len(labels))])


def overlapping(groups):
    plain, groups = make().dataset, torch.tensor(groups)
    labels, inputs = plain.labels[: len(groups)], plain.inputs[: len(groups)]
    split = OrderedSplit(train_fraction=0.5, gap=2)
    return replace(plain, labels=labels, inputs=inputs, groups=groups, group_names=("a", "b"), own_split=split)


def test_samples_that_overlap_are_split_by_order_whatever_the_protocol_says():
    data = federate(overlapping([0] * 10 + [1] * 20), Halves(seed=1, generator="numpy"), 2, "random", 0.75)
    assert [own.tolist() for own in data.record.train] == [list(range(5)), list(range(10, 20))]
    assert [own.tolist() for own in data.record.test] == [[7, 8, 9], list(range(22, 30))]
    assert {"split": "ordered", "train_fraction": 0.5, "gap": 2}.items() <= data.record.facts.items()


@pytest.mark.parametrize(
    ("groups", "split", "validation", "message"),
    [
        ([0] * 5 + [1] * 25, "random", None, "overlap.*client 0 does not; choose partition=by_user"),
        ([0, 1] * 15, "random", None, "overlap.*client 0 does not; choose partition=by_user"),
        ([0] * 10 + [1] * 20, "random", Validation(0, 3, 0), "validation: .* overlap, so no fold of them is unseen"),
        ([0] * 10 + [1] * 20, "common", None, "split=common: .* are split by their order"),
    ],
)
def test_samples_that_overlap_stay_with_their_user(groups, split, validation, message):
    with pytest.raises(ValueError, match=message):
        federate(overlapping(groups), Halves(seed=1, generator="numpy"), 2, split, 0.75, validation)


def test_what_is_learnt_from_the_data_is_learnt_from_the_training_parts():
    seen = []

    class Spy(LabelledDataset):
        def fitted(self, train_rows):
            seen.append(train_rows.tolist())
            return self

    plain = make().dataset
    spy = Spy(**{f.name: getattr(plain, f.name) for f in fields(plain)})
    data = federate(spy, ALIKE, 4, "stratified", 0.75)
    held = federate(spy, ALIKE, 4, "stratified", 0.75, Validation(0, 4, 1))
    assert seen == [sorted(np.concatenate(each.record.train).tolist()) for each in (data, held)]
    assert not set(seen[1]) & set(np.concatenate(held.record.test).tolist())


def folds_of(fold, folds=3, **options):
    return make(validation=Validation(0, folds, fold), **options).record


@pytest.mark.parametrize("split", ["stratified", "random"])
def test_a_held_out_fold_comes_from_the_training_part_and_nobody_sees_the_test_part(split):
    whole, held = make(split=split).record, []
    for fold in range(3):
        record = folds_of(fold, split=split)
        for client in range(20):
            train, scored = record.train[client].tolist(), record.test[client].tolist()
            own = whole.train[client].tolist()
            assert sorted([*train, *scored]) == sorted(own)  # so that neither is in the test part
            assert train == [sample for sample in own if sample not in scored], "in training order"
        held.append(record.test)
        assert record.facts["validation"] == {"subset": 0, "folds": 3, "fold": fold}
        assert f"scored on held-out fold {fold} of the training parts; nobody sees the test parts" in record.notes
        assert record.test_counts.sum() == sum(map(len, record.test))
    for client in range(20):
        together = np.concatenate([scored[client] for scored in held])
        assert sorted(together.tolist()) == sorted(whole.train[client].tolist()), "each is held out once"
        sizes = [len(scored[client]) for scored in held]
        assert max(sizes) - min(sizes) <= 1


def test_folds_have_the_same_share_of_every_class():
    whole = make(alpha=100.0).record
    for fold in range(3):
        counts = folds_of(fold, alpha=100.0).test_counts
        assert (np.abs(counts - whole.train_counts / 3) < 1.34).all()


@pytest.mark.parametrize(
    ("subset", "folds", "fold", "message"),
    [
        (0, 1, 0, "folds=1; expected at least 2"),
        (0, 3, 3, "0 to 2"),
        (0, None, 0, "set validation.subset=1"),
        (-1, 4, 0, "validation.subset=-1; expected at least 0"),
    ],
)
def test_validation_is_checked(subset, folds, fold, message):
    with pytest.raises(ValueError, match=message):
        Validation(subset, folds, fold)


def test_the_test_parts_of_another_subset_are_scored():
    whole, other = make().record, make(validation=Validation(1, None, 0)).record
    assert [part.tolist() for part in other.test] == [part.tolist() for part in whole.test]
    assert other.facts["validation"] == {"subset": 1, "folds": None, "fold": 0}
    assert "samples of subset 1, which no run outside of validation sees" in other.notes
    assert not any("held-out" in note for note in [*other.notes, *whole.notes])
    assert "validation" not in whole.facts
