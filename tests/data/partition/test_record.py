"""What the record, the table and the picture say about clients that hold one domain or user each."""

import io
import json

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

NAMES = ("art", "unused", "photo", "sketch")
GROUPS = np.repeat([0, 2, 3], [60, 40, 100])


def record_of(rule, num_clients, class_names=("cat", "dog"), group_names=NAMES, groups=GROUPS):
    data = LabelledDataset(
        name="stand-in",
        labels=torch.arange(len(groups)) % len(class_names),
        class_names=tuple(class_names),
        groups=torch.as_tensor(groups),
        group_names=tuple(group_names),
        label_mapping={},
        parts={"all": len(groups)},
        fingerprint="0",
        inputs=torch.zeros(len(groups), 1, 1, 1, dtype=torch.uint8),
        facts=ImageFacts(channels=1, size=1, mean=(0.5,), std=(0.5,), fingerprint="0"),
    )
    return federate(data, rule, num_clients, "random", 0.75).record


def by_domain(k):
    return ByDomain(clients_per_domain=k, seed=1, generator="numpy")


def by_user(least, most=None):
    return ByUser(min_samples=least, max_samples_per_client=most, seed=1, generator="numpy")


IID_RULE = IID(seed=1, generator="numpy")


@pytest.mark.parametrize(
    ("rule", "num_clients", "groups", "names"),
    [
        (by_domain(1), 3, ["art", "photo", "sketch"], ["art", "photo", "sketch"]),
        (
            by_domain(2),
            6,
            ["art", "art", "photo", "photo", "sketch", "sketch"],
            ["art/1", "art/2", "photo/1", "photo/2", "sketch/1", "sketch/2"],
        ),
        (by_user(1), 3, ["photo", "art", "sketch"], ["photo", "art", "sketch"]),
        (IID_RULE, 4, [], ["0", "1", "2", "3"]),
    ],
    ids=["domains", "split-domains", "users", "no-groups"],
)
def test_clients_are_called_after_what_they_hold(rule, num_clients, groups, names, tmp_path):
    record = record_of(rule, num_clients)
    assert list(record.client_groups) == groups
    assert list(record.client_names) == names
    for part in (
        *zip(record.train, record.client_groups, strict=False),
        *zip(record.test, record.client_groups, strict=False),
    ):
        assert {NAMES[g] for g in GROUPS[part[0]]} == {part[1]}
    record.save(tmp_path)
    content = json.loads((tmp_path / "partition.json").read_text())
    assert (content["client_groups"], content["client_names"]) == (groups, names)
    back = PartitionRecord.load(tmp_path)
    assert (back.client_groups, back.client_names) == (record.client_groups, record.client_names)
    assert back.facts == record.facts


def test_as_many_groups_as_clients():
    record = record_of(IID_RULE, 4)
    fields = {**record.__dict__, "client_groups": ("a", "b")}
    fields.pop("client_names", None)
    with pytest.raises(ValueError, match="2 names for 4 clients"):
        PartitionRecord(**fields)


def test_what_a_rule_leaves_out_is_noted():
    record = record_of(by_user(50, most=80), 1)
    assert record.facts["left_out"]["users with fewer than 50 samples"] == 1
    assert "left out: 1 users with fewer than 50 samples, 1 users not drawn" in " ".join(record.notes)
    assert f"{record.facts['unused']} samples are held by no client" in record.notes
    rule = Pathological(classes_per_client=1, balanced=True, min_samples=1, seed=1, generator="numpy")
    record = record_of(rule, 1)
    assert "left out: 1 classes, as no client may take another" in record.notes
    assert not any(note.startswith("left out") for note in record_of(IID_RULE, 4).notes)


def printed(record, width=160):
    console = Console(width=width, record=True, file=io.StringIO())
    table = partition_table(record)
    console.print(table)
    return table, console.export_text()


def test_the_table_has_a_column_of_names_only_if_there_are_any():
    table, text = printed(record_of(by_domain(2), 6))
    holds = next(column for column in table.columns if column.header == "holds")
    assert list(holds.cells) == ["art/1", "art/2", "photo/1", "photo/2", "sketch/1", "sketch/2", ""]
    assert "sketch/2" in text
    assert "holds" not in [column.header for column in printed(record_of(IID_RULE, 4))[0].columns]


def test_a_narrow_console_cuts_the_classes_and_never_a_number():
    classes = tuple(f"a rather long name {i}" for i in range(10))
    record = record_of(by_domain(2), 6, classes)
    _, text = printed(record, width=72)
    rows = [line.strip("│ ").split("│") for line in text.splitlines() if line.startswith("│")]
    assert [row[1].strip() for row in rows[:-1]] == [str(len(train)) for train in record.train]
    assert [row[5].strip() for row in rows[:-1]] == list(record.client_names)
    assert all("…" in row[6] for row in rows[:-1])
    assert max(map(len, text.splitlines())) <= 72


def test_names_that_would_break_a_table_or_a_picture(tmp_path):
    classes = ("\n", " ", "[", "[red]", "$x$", "word " * 20)
    record = record_of(by_domain(1), 2, classes, ("[bold]a$", "long" * 20), np.repeat([0, 1], [60, 60]))
    table, text = printed(record)
    for shown in ("\\n 8|2", "' ' ", "[ ", "[bold]a$", "long" * 5 + "lon…"):
        assert shown in text, shown
    assert "[red]" in "".join(map(str, table.columns[-1].cells))
    partition_picture(record, tmp_path / "partition.png")
    with Image.open(tmp_path / "partition.png") as image:
        assert min(image.size) > 300


def test_the_picture_shows_the_names(tmp_path):
    """Names take room below the panels, so the same counts with and without them give different pictures."""
    record = record_of(by_domain(1), 3)
    fields = {k: v for k, v in record.__dict__.items() if k not in ("client_names", "client_groups", "hash")}
    pictures = []
    for given in (record, PartitionRecord(**fields)):
        partition_picture(given, tmp_path / "partition.png")
        with Image.open(tmp_path / "partition.png") as image:
            pictures.append(np.asarray(image.convert("L")))
    assert pictures[0].shape == pictures[1].shape
    assert (pictures[0] != pictures[1]).mean() > 0.01
