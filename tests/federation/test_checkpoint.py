import json
import os
import time

import pytest
import torch

from fedsaf.federation.checkpoint import MANIFEST, PREVIOUS, Checkpoint, CheckpointError

IDENTITY = {"config_hash": "abc", "partition_hash": "def"}


def write(checkpoint, round, clients=(0, 1), entries=None):
    """Write a checkpoint whose tensors hold the round."""
    entries = dict(entries or {})
    for client in clients:
        state = {"w": torch.full((4,), float(round)), "memory.m": torch.tensor(client)}
        entries[str(client)] = checkpoint.write_client(client, round, state)
    checkpoint.commit(round, {"c.values": torch.full((2,), float(round))}, {"clients": entries, **IDENTITY}, 0.0)
    return entries


@pytest.fixture
def checkpoint(tmp_path):
    return Checkpoint(tmp_path / "checkpoint", 1.0)


def test_comes_back_as_it_was_and_with_weights_only(checkpoint):
    assert checkpoint.load(IDENTITY) is None
    write(checkpoint, 1)
    restored = checkpoint.load(IDENTITY)
    assert (restored.round, restored.problems) == (1, [])
    assert restored.server["c.values"].tolist() == [1.0, 1.0]
    assert checkpoint.read(restored.manifest["clients"]["1"])["memory.m"].item() == 1
    for path in checkpoint.folder.glob("*.pt"):
        torch.load(path, weights_only=True)
    json.loads((checkpoint.folder / MANIFEST).read_text())


def test_a_client_that_did_not_change_keeps_its_file(checkpoint):
    entries = write(checkpoint, 1)
    for round in (2, 3, 4):
        entries = write(checkpoint, round, clients=[0], entries=entries)
    restored = checkpoint.load(IDENTITY)
    assert checkpoint.read(restored.manifest["clients"]["1"])["w"].tolist() == [1.0] * 4
    assert checkpoint.read(restored.manifest["clients"]["0"])["w"].tolist() == [4.0] * 4


def test_two_generations_are_kept_and_no_more(checkpoint):
    for round in range(6):
        write(checkpoint, round)
    rounds = {int(path.stem.rpartition("_")[2]) for path in checkpoint.folder.glob("*.pt")}
    assert rounds == {4, 5}
    assert not list(checkpoint.folder.glob("*.partial"))


@pytest.mark.parametrize("name", ["server_round_000002.pt", "client_00001_round_000002.pt"])
@pytest.mark.parametrize("damage", ["cut short", "missing", "other bytes"])
def test_a_damaged_generation_is_passed_over_and_the_reason_given(checkpoint, name, damage):
    write(checkpoint, 1)
    write(checkpoint, 2)
    path = checkpoint.folder / name
    if damage == "missing":
        path.unlink()
    elif damage == "other bytes":
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 255
        path.write_bytes(content)
    else:
        os.truncate(path, path.stat().st_size - 1)
    restored = checkpoint.load(IDENTITY)
    assert restored.round == 1
    assert name in restored.problems[0]


def test_what_a_run_resumed_from_outlives_the_damaged_generation(checkpoint):
    """The next commit must not let a manifest that cannot be used take the place of the one that was used."""
    entries = write(checkpoint, 1)
    write(checkpoint, 2)
    os.truncate(checkpoint.folder / "server_round_000002.pt", 3)
    assert checkpoint.load(IDENTITY).round == 1
    write(checkpoint, 3, entries=entries)
    os.truncate(checkpoint.folder / "server_round_000003.pt", 3)
    assert checkpoint.load(IDENTITY).round == 1


@pytest.mark.parametrize("content", ["", "{", "[]", '{"round": 2}'])
def test_a_manifest_cut_short_is_passed_over_now_and_later(checkpoint, content):
    entries = write(checkpoint, 1)
    write(checkpoint, 2)
    (checkpoint.folder / MANIFEST).write_text(content)
    assert checkpoint.load(IDENTITY).round == 1
    write(checkpoint, 3, entries=entries)
    assert checkpoint.load(IDENTITY).round == 3


def test_nothing_usable_is_an_error_not_a_new_start(checkpoint):
    write(checkpoint, 1)
    write(checkpoint, 2)
    for path in checkpoint.folder.glob("server*"):
        os.truncate(path, 10)
    with pytest.raises(CheckpointError, match=r"no usable checkpoint.*force=true"):
        checkpoint.load(IDENTITY)


@pytest.mark.parametrize("key", list(IDENTITY))
def test_another_configuration_is_refused_with_both_values(checkpoint, key):
    write(checkpoint, 1)
    with pytest.raises(CheckpointError, match=f"{key} '{IDENTITY[key]}', this run has 'other'"):
        checkpoint.load({**IDENTITY, key: "other"})


def test_a_kill_between_the_two_manifests_loses_nothing(checkpoint):
    write(checkpoint, 1)
    os.replace(checkpoint.folder / MANIFEST, checkpoint.folder / PREVIOUS)
    assert checkpoint.load(IDENTITY).round == 1


def test_writing_takes_no_larger_share_of_the_time_than_allowed(tmp_path):
    checkpoint = Checkpoint(tmp_path, 0.1)
    assert checkpoint.due()
    checkpoint.written(time.monotonic() - 5.0)  # took 5 s, so the next is due 50 s later
    assert not checkpoint.due()
    checkpoint._closed -= 49.0
    assert not checkpoint.due()
    checkpoint._closed -= 2.0
    assert checkpoint.due()


@pytest.mark.parametrize("share", [0, -0.5, 1.5, float("nan")])
def test_a_share_outside_its_range_is_refused(tmp_path, share):
    with pytest.raises(ValueError, match="checkpoint_overhead"):
        Checkpoint(tmp_path, share)
