"""What the record, the table and the picture say about who holds what."""

import io
import json
from dataclasses import fields

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from fedsaf.core.types import ImageFacts
from fedsaf.data.datasets import LabelledDataset
from fedsaf.data.federated import federate
from fedsaf.data.partition.group_shift import ByDomain, ByUser
from fedsaf.data.partition.label_shift import Pathological
from fedsaf.data.partition.quantity_shift import IID
from fedsaf.data.partition.record import PartitionRecord
from fedsaf.data.partition.report import partition_picture, partition_table
from tests.data.recipe import make

NAMES = ("art", "unused", "photo", "sketch")
GROUPS = np.repeat([0, 2, 3], [60, 40, 100])
SEEDED = {"seed": 1, "generator": "numpy"}
IID_RULE = IID(**SEEDED)
ONE_CLASS = Pathological(classes_per_client=1, balanced=True, min_samples=1, **SEEDED)


def record_of(rule, num_clients, class_names=("cat", "dog"), group_names=NAMES, groups=GROUPS):
    class_names = tuple(class_names)
    data = LabelledDataset(
        name="stand-in",
        labels=torch.arange(len(groups)) % len(class_names),
        class_names=class_names,
        groups=torch.as_tensor(groups),
        group_names=tuple(group_names),
        label_mapping={},
        parts={"all": len(groups)},
        fingerprint="0",
        inputs=torch.zeros(len(groups), 1, 1, 1, dtype=torch.uint8),
        facts=ImageFacts(channels=1, size=1, mean=(0.5,), std=(0.5,), fingerprint="0"),
    )
    return federate(data, rule, num_clients, "random", 0.75).record


def changed(record, **values):
    return PartitionRecord(**{field.name: getattr(record, field.name) for field in fields(record)} | values)


def by_domain(k):
    return ByDomain(clients_per_domain=k, **SEEDED)


def by_user(least, most=None):
    return ByUser(min_samples=least, max_samples_per_client=most, **SEEDED)


# --- record ----------------------------------------------------------------------------------------------------------


def test_hash_sees_seed_split_order_and_boundary():
    record = make().record
    assert make(seed=2).record.hash != record.hash
    assert make(split="random").record.hash != record.hash
    assert changed(record, train=[record.train[0][::-1], *record.train[1:]]).hash != record.hash
    moved = [np.append(record.train[0], record.test[0][:1]), *record.train[1:]]
    assert changed(record, train=moved, test=[record.test[0][1:], *record.test[1:]]).hash != record.hash
    assert changed(record).hash == record.hash


def test_save_and_load(tmp_path):
    record = make().record
    record.save(tmp_path)
    back = PartitionRecord.load(tmp_path)
    assert (back.hash, back.facts, back.notes) == (record.hash, record.facts, record.notes)
    assert np.array_equal(back.test_counts, record.test_counts)
    content = json.loads((tmp_path / "partition.json").read_text())
    assert content["hash"] == record.hash
    assert content["parameters"]["alpha"] == 0.05
    assert content["fingerprint"] == make().dataset.fingerprint
    assert content["sizes"]["train"] == [len(a) for a in record.train]
    (tmp_path / "partition.json").write_text(json.dumps({**content, "hash": "0" * 64}))
    with pytest.raises(ValueError, match="hash"):
        PartitionRecord.load(tmp_path)


@pytest.mark.parametrize(
    ("rule", "num_clients", "groups", "names"),
    [
        (by_domain(1), 3, "art photo sketch", "art photo sketch"),
        (by_domain(2), 6, "art art photo photo sketch sketch", "art/1 art/2 photo/1 photo/2 sketch/1 sketch/2"),
        (by_user(1), 3, "photo art sketch", "photo art sketch"),
        (IID_RULE, 4, "", "0 1 2 3"),
    ],
    ids=["domains", "split-domains", "users", "no-groups"],
)
def test_clients_are_called_after_what_they_hold(rule, num_clients, groups, names, tmp_path):
    record = record_of(rule, num_clients)
    assert record.client_groups == tuple(groups.split())
    assert record.client_names == tuple(names.split())
    for train, test, group in zip(record.train, record.test, record.client_groups, strict=False):
        assert {NAMES[g] for g in GROUPS[np.concatenate([train, test])]} == {group}
    record.save(tmp_path)
    content = json.loads((tmp_path / "partition.json").read_text())
    assert (content["client_groups"], content["client_names"]) == (groups.split(), names.split())
    back = PartitionRecord.load(tmp_path)
    assert (back.client_groups, back.client_names) == (record.client_groups, record.client_names)


def test_as_many_groups_as_clients():
    with pytest.raises(ValueError, match="2 names for 4 clients"):
        changed(record_of(IID_RULE, 4), client_groups=("a", "b"))


def test_unseen_test_classes_are_counted():
    assert make(alpha=0.3).record.unseen.sum() == 0
    record = make(alpha=0.3, split="random").record
    pairs = zip(record.train_counts, record.test_counts, strict=True)
    expected = [len(set(np.flatnonzero(test)) - set(np.flatnonzero(train))) for train, test in pairs]
    assert record.unseen.tolist() == expected
    clients = sum(u > 0 for u in expected)
    assert clients > 0
    assert f"{clients} clients are tested on classes they never train on ({sum(expected)} pairs)" in record.notes


def test_what_is_moved_unused_or_left_out_is_noted():
    assert f"{make().record.facts['moved']} samples were moved" in make().record.notes[0]
    record = federate(make().dataset, ONE_CLASS, 3, "stratified", 0.75).record
    assert record.facts["unused"] == 350
    assert "350 samples are held by no client" in record.notes
    assert (record.train_counts > 0).sum(1).tolist() == [1, 1, 1]
    assert "left out: 1 classes, as no client may take another" in record_of(ONE_CLASS, 1).notes
    record = record_of(by_user(50, most=80), 1)
    assert record.facts["left_out"]["users with fewer than 50 samples"] == 1
    assert "left out: 1 users with fewer than 50 samples, 1 users not drawn" in " ".join(record.notes)
    assert not any(note.startswith("left out") for note in record_of(IID_RULE, 4).notes)


# --- table and picture -----------------------------------------------------------------------------------------------


def printed(record, width=160):
    console = Console(width=width, record=True, file=io.StringIO())
    table = partition_table(record)
    console.print(table)
    return {column.header: list(column.cells) for column in table.columns}, console.export_text()


def picture(record, folder):
    partition_picture(record, folder / "partition.png")
    with Image.open(folder / "partition.png") as image:
        return np.asarray(image.convert("L"))


def test_table_prints_what_the_record_holds():
    record = make().record
    columns, text = printed(record)
    assert record.hash[:12] in text
    assert "alpha=0.05" in text
    assert columns["train"] == [str(len(a)) for a in record.train] + [str(record.train_counts.sum())]
    assert columns["test"] == [str(len(a)) for a in record.test] + [str(record.test_counts.sum())]
    pairs = zip(record.train_counts, record.test_counts, strict=True)
    assert columns["classes"][:-1] == [f"{(train > 0).sum()}|{(test > 0).sum()}" for train, test in pairs]
    top = int(np.argmax(record.train_counts[0] + record.test_counts[0]))
    shares = columns["top 4 classes, train|test"][0].plain
    assert shares.startswith(f"{top} {record.train_counts[0, top]}|{record.test_counts[0, top]}")
    assert "holds" not in columns


def test_a_narrow_console_cuts_the_classes_and_never_a_number_or_a_name():
    record = record_of(by_domain(2), 6, [f"a rather long name {i}" for i in range(10)])
    assert printed(record)[0]["holds"] == ["art/1", "art/2", "photo/1", "photo/2", "sketch/1", "sketch/2", ""]
    _, text = printed(record, width=72)
    rows = [line.strip("│ ").split("│") for line in text.splitlines() if line.startswith("│")]
    assert [row[1].strip() for row in rows[:-1]] == [str(len(train)) for train in record.train]
    assert [row[5].strip() for row in rows[:-1]] == list(record.client_names)
    assert all("…" in row[6] for row in rows[:-1])
    assert max(map(len, text.splitlines())) <= 72


def test_names_that_would_break_a_table_or_a_picture(tmp_path):
    classes = ("\n", " ", "[", "[red]", "$x$", "word " * 20)
    record = record_of(by_domain(1), 2, classes, ("[bold]a$", "long" * 20), np.repeat([0, 1], [60, 60]))
    columns, text = printed(record)
    for shown in ("\\n 8|2", "' ' ", "[ ", "[bold]a$", "long" * 5 + "lon…"):
        assert shown in text, shown
    assert "[red]" in "".join(map(str, columns["top 4 classes, train|test"]))
    assert min(picture(record, tmp_path).shape) > 300


@pytest.mark.parametrize(("num_clients", "classes"), [(1, 1), (200, 200)])
def test_pictures_of_the_least_and_of_many(tmp_path, num_clients, classes):
    pixels = picture(record_of(IID_RULE, num_clients, map(str, range(classes)), groups=[0] * 2000), tmp_path)
    assert min(pixels.shape) > 300
    assert len(np.unique(pixels)) > 10


def test_the_picture_shows_the_names(tmp_path):
    """Names take room below the panels, so the same counts with and without them give different pictures."""
    record = record_of(by_domain(1), 3)
    named, plain = picture(record, tmp_path), picture(changed(record, client_groups=()), tmp_path)
    assert named.shape == plain.shape
    assert (named != plain).mean() > 0.01
