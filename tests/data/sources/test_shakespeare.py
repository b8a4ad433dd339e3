import os
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from fedsaf.data.federated import federate
from fedsaf.data.partition.group_shift import ByUser
from fedsaf.data.sources.shakespeare import (
    ALPHABET,
    LENGTH,
    SHORT,
    STRANGE,
    STRANGER,
    Shakespeare,
    character_ids,
    cut_windows,
)

REAL_ROOT = os.environ.get("DATA_ROOT")


@pytest.fixture(autouse=True)
def no_data_root(monkeypatch):
    monkeypatch.delenv("DATA_ROOT", raising=False)


def source(path, **options):
    return Shakespeare(**{"name": "plays", "hub_id": None, "path": path and str(path), "min_lines": 3, **options})


def naive_windows(text):
    """(window, next character) at every position, by slicing; strangers left out."""
    pairs = [(text[i : i + 80], text[i + 80]) for i in range(len(text) - 80)]
    return [(x, y) for x, y in pairs if set(x + y) <= set(ALPHABET)]


def as_pairs(data, role=None):
    rows = range(len(data)) if role is None else (data.groups == data.group_names.index(role)).nonzero()[:, 0].tolist()
    return [("".join(ALPHABET[i] for i in data.inputs[r].tolist()), ALPHABET[data.labels[r]]) for r in rows]


def prose(length, seed=0):
    rng = np.random.default_rng(seed)
    return "".join(rng.choice(list("abc defgh,.XYZ"), length))


def test_alphabet_is_the_published_one():
    assert len(ALPHABET) == len(set(ALPHABET)) == 80
    assert ALPHABET[:26] == "\n !\"&'(),-.0123456789:;>?A"
    assert ALPHABET[50:54] == "Z[]a"
    assert ALPHABET[78:] == "z}"
    assert character_ids(ALPHABET).tolist() == list(range(80))
    assert character_ids("$~*\tÿ\u2014\U0001f600").tolist() == [STRANGER] * 7


@pytest.mark.parametrize("length", [0, 1, 79, 80, 81, 82, 200])
def test_windows_equal_a_naive_loop(length):
    texts = [prose(length), prose(300, 1), prose(50, 2)]
    inputs, targets, counts, left_out = cut_windows([character_ids(text) for text in texts])
    expected = [naive_windows(text) for text in texts]
    assert counts.tolist() == [len(pairs) for pairs in expected] == [max(length - 80, 0), 220, 0]
    found = [("".join(ALPHABET[i] for i in x), ALPHABET[y]) for x, y in zip(inputs, targets, strict=True)]
    assert found == sum(expected, [])
    assert left_out == 0


@pytest.mark.parametrize("places", [[0], [80], [81], [299], [100, 101, 250], [40, 200]])
def test_windows_with_a_stranger_are_left_out(places):
    text = list(prose(300))
    for place in places:
        text[place] = "$"
    inputs, targets, counts, left_out = cut_windows([character_ids("".join(text))])
    expected = naive_windows("".join(text))
    assert [("".join(ALPHABET[i] for i in x), ALPHABET[y]) for x, y in zip(inputs, targets, strict=True)] == expected
    assert left_out == 220 - len(expected) > 0


# --- speeches --------------------------------------------------------------------------------------------------------


@pytest.fixture
def speeches(tmp_path, write_parquet):
    """ANN speaks twice, with runs of spaces; BOB has two lines; CAT is too short; DAN has a stranger."""
    ann = [prose(60) + "\n" + prose(50, 1), "O   my\nlord,  " + prose(40, 2)]
    rows = [
        ("P_DAN", "a\nb\n" + prose(100, 3) + "$" + prose(120, 4)),
        ("P_ANN", ann[0]),
        ("P_BOB", prose(100) + "\n" + prose(100)),
        ("P_ANN", ann[1]),
        ("P_CAT", "too\nfew\nwords"),
    ]
    columns = {"character_id": [role for role, _ in rows], "text": [text for _, text in rows]}
    return write_parquet(tmp_path / "plays" / "speeches.parquet", columns), "\n".join(ann), rows[0][1]


def test_speeches_of_a_role_are_joined_and_cut(speeches):
    file, ann, dan = speeches
    data = source(file).load(1)
    assert data.group_names == ("P_ANN", "P_DAN")
    assert as_pairs(data, "P_ANN") == naive_windows(re.sub(" +", " ", ann.replace("\n", " ")))
    assert as_pairs(data, "P_DAN") == naive_windows(re.sub(" +", " ", dan.replace("\n", " ")))
    assert data.left_out == {
        "roles with fewer than 3 lines": 1,
        SHORT: 1,
        STRANGE: 81,
    }
    assert (data.groups[1:] >= data.groups[:-1]).all()
    assert source(file, min_lines=1).load(1).group_names == ("P_ANN", "P_BOB", "P_DAN")


def test_what_models_and_records_are_told(speeches):
    data = source(speeches[0]).load(1)
    assert data.inputs.dtype == torch.uint8
    assert data.inputs.shape == (len(data), LENGTH)
    assert (data.facts.length, data.facts.num_tokens, data.num_classes) == (80, 80, 80)
    assert data.vocabulary == tuple(ALPHABET)
    assert data.class_names[:3] == ("\\n", "space", "!")
    assert data.parts == {"all": len(data)}
    assert (data.inputs != 0).all()  # id 0, the line loader, never occurs: models may freeze its row as padding
    assert source(speeches[0]).load(2).fingerprint == data.fingerprint
    assert source(speeches[0], min_lines=1).load(1).fingerprint != data.fingerprint


def test_there_is_no_other_subset(speeches):
    with pytest.raises(ValueError, match=r"validation.subset=1: \w+ has no subsets, since all windows are taken"):
        source(speeches[0]).load(1, subset=1)


def test_no_test_window_overlaps_a_training_window(tmp_path, write_parquet):
    """Characters are told apart by a counter written into the text, so that a window names its place."""
    columns = {"character_id": [], "text": []}
    for role, numbers in (("P_LONG", range(1000, 1400)), ("P_MORE", range(2000, 2300))):
        columns["character_id"] += [role] * len(numbers)
        columns["text"] += [f"{number};" for number in numbers]
    data = source(write_parquet(tmp_path / "speeches.parquet", columns)).load(1)
    rule = ByUser(seed=1, generator="numpy", min_samples=1, max_samples_per_client=None)
    federated = federate(data, rule, 2, "random", 0.75)
    assert federated.record.facts["split"] == "ordered"
    assert federated.record.facts["left_out"][STRANGE] == 0
    for client, own in ((0, "P_MORE"), (1, "P_LONG")):
        train, test = federated.record.train[client], federated.record.test[client]
        n = len(as_pairs(data, own))
        assert (len(train), len(test)) == (int(0.9 * n), n - int(0.9 * n) - 79)
        assert (data.groups[np.concatenate([train, test])] == data.group_names.index(own)).all()
        numbers = [
            set(re.findall(r"\d{4}", "".join(x for x, _ in as_pairs(data)[rows[0] : rows[-1] + 1 : 80])))
            for rows in (train, test)
        ]
        assert len(numbers[0] & numbers[1]) <= 1  # the word across the border


# --- ready windows ---------------------------------------------------------------------------------------------------


def window_columns(texts):
    rows = [
        (role, x, y)
        for role, text in texts
        for x, y in ((text[i : i + 80], text[i + 80]) for i in range(len(text) - 80))
    ]
    return {name: [row[i] for row in rows] for i, name in enumerate(("character_id", "x", "y"))}


def test_ready_windows_are_sorted_by_role_in_their_order(tmp_path, write_parquet):
    b, a, strange = prose(120), prose(150, 1), prose(60, 2) + "é" + prose(60, 3)
    for part, texts in (
        ("train", [("B", b[:100]), ("A", a[:100]), ("S", strange)]),
        ("test", [("B", b[20:]), ("A", a[20:])]),
    ):
        write_parquet(tmp_path / "w" / f"{part}.parquet", window_columns(texts))
    data = source(tmp_path / "w").load(1)
    assert data.group_names == ("A", "B")
    assert as_pairs(data, "A") == naive_windows(a[:100]) + naive_windows(a[20:])
    assert as_pairs(data, "B") == naive_windows(b[:100]) + naive_windows(b[20:])
    assert data.left_out == {SHORT: 1, STRANGE: 41}
    assert data.own_split is not None


def test_speeches_and_their_windows_are_the_same_data(tmp_path, write_parquet, speeches):
    file, ann, _ = speeches
    cut = source(file).load(1)
    ready = write_parquet(
        tmp_path / "w.parquet", window_columns([("P_ANN", re.sub(" +", " ", ann.replace("\n", " ")))])
    )
    assert as_pairs(source(ready).load(1)) == as_pairs(cut, "P_ANN")


def test_windows_in_another_order_are_refused(tmp_path, write_parquet):
    columns = window_columns([("A", prose(400))])
    order = np.random.default_rng(0).permutation(len(columns["x"]))
    shuffled = {name: [values[i] for i in order] for name, values in columns.items()}
    with pytest.raises(ValueError, match="must stand in the order of the text"):
        source(write_parquet(tmp_path / "w.parquet", shuffled)).load(1)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"x": ["short", "b" * 80]}, "column 'x', row 0: 5 characters instead of 80"),
        ({"x": ["a" * 80, "é" * 81]}, "column 'x', row 1: 81 characters instead of 80"),
        ({"y": ["a", ""]}, "column 'y', row 1: 0 characters instead of 1"),
        ({"character_id": ["A", None]}, "1 values of character_id, x, y are missing"),
        ({"y": None}, "needs the columns character_id, text .* there are w.parquet: character_id, x$"),
        ({"x": ["é" * 80] * 2}, "no role has the 81 characters"),
    ],
)
def test_bad_windows_are_named(tmp_path, write_parquet, change, named):
    columns = {"character_id": ["A", "A"], "x": ["a" * 80, "b" * 80], "y": ["a", "b"]} | change
    file = write_parquet(tmp_path / "w.parquet", {name: values for name, values in columns.items() if values})
    with pytest.raises(ValueError, match=named):
        source(file).load(1)


def test_a_folder_with_speeches_is_read_as_speeches(speeches, write_parquet, monkeypatch):
    file, ann, _ = speeches
    write_parquet(file.parent / "leaf-windows.parquet", window_columns([("OTHER", prose(100))]))
    monkeypatch.setenv("DATA_ROOT", str(file.parents[1]))
    assert source(None).load(1).group_names == ("P_ANN", "P_DAN")


# --- the real plays --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plays():
    folder = Path(REAL_ROOT or "") / "shakespeare"
    if not REAL_ROOT or not (folder / "speeches.parquet").is_file():
        pytest.skip("DATA_ROOT has no shakespeare/speeches.parquet")
    spoken = defaultdict(list)
    table = pq.read_table(folder / "speeches.parquet")
    for row in table.select(["character_id", "text"]).to_pylist():
        spoken[row["character_id"]].append(row["text"])
    return folder, table, {role: "\n".join(texts) for role, texts in spoken.items()}


def test_real_plays_have_every_role_with_a_window(plays):
    folder, table, spoken = plays
    assert (len(set(table["play"].to_pylist())), len(spoken)) == (37, 1337)
    assert sum(len(text) >= 81 for text in spoken.values()) == 1154
    data = source(folder).load(1)
    lines = {role: text.count("\n") + 1 for role, text in spoken.items()}
    plain = {role: re.sub(" +", " ", text.replace("\n", " ")) for role, text in spoken.items() if lines[role] > 2}
    expected = {role: naive_windows(text) for role, text in plain.items() if len(text) < 700}
    sizes = dict(zip(data.group_names, data.groups.bincount().tolist(), strict=True))
    assert len(sizes) == 1135
    assert len(data) == 4_207_428
    assert {role: sizes.get(role, 0) for role in expected} == {role: len(pairs) for role, pairs in expected.items()}
    for role in sorted(expected)[::50]:
        assert as_pairs(data, role) == expected[role] if expected[role] else role not in sizes


def test_real_plays_give_the_ready_windows(plays):
    folder, _, _ = plays
    cut = source(folder).load(1)
    ready = source(folder / "leaf-windows-train.parquet").load(1)
    assert len(ready.group_names) == 100
    assert len(ready) + ready.left_out[STRANGE] == 200_000
    for g, role in enumerate(ready.group_names):
        own = ready.inputs[ready.groups == g]
        start = int(torch.searchsorted(cut.groups, cut.group_names.index(role)))
        assert torch.equal(cut.inputs[start : start + len(own)], own), role
