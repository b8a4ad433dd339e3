"""Sets that are mapped from a file: the same bits, decoded once, shared, and made again if the file is not intact."""

import os
import pickle
import warnings
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from fedsaf.data import decode, pixels
from fedsaf.data.batches import ClientData, Normalise
from fedsaf.data.federated import federate
from fedsaf.data.partition.quantity_shift import IID
from fedsaf.data.sources.embedded import Synthetic
from fedsaf.data.sources.folders import ImageFolder
from fedsaf.data.sources.image_tables import Parquet
from tests.data.recipe import images, png, source_of


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDSAF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pixels"


@pytest.fixture
def table(tmp_path, write_parquet):
    """300 images in one file: more than two blocks."""
    rows = {"img": images(*(i % 250 for i in range(300))), "label": [i % 3 for i in range(300)]}
    return write_parquet(tmp_path / "set" / "train.parquet", rows, {"img": "image", "label": ["a", "b", "c"]})


@pytest.fixture
def source(table):
    """Return the source with options; mapped unless they say otherwise."""
    return lambda **options: source_of(Parquet, path=table, **{"memory_limit_gib": 0, **options})


@pytest.fixture
def decoded(monkeypatch):
    """Number of images that were decoded in full so far."""
    counts = [0]
    plain = decode._decoded_block

    def counting(block, shape, resize):
        counts[0] += len(block)
        return plain(block, shape, resize)

    monkeypatch.setattr(decode, "_decoded_block", counting)
    return counts


def test_mapped_and_in_memory_are_the_same_bits(source, cache):
    mapped, held = source().load(1), source(memory_limit_gib=4).load(1)
    assert (mapped.mapped_file.parent, held.mapped_file) == (cache, None)
    assert torch.equal(mapped.inputs, held.inputs)
    assert (mapped.fingerprint, mapped.facts) == (held.fingerprint, held.facts)
    assert torch.equal(mapped.labels, held.labels)
    assert mapped.inputs.is_contiguous()


def test_the_limit_is_the_size_of_the_decoded_images(source):
    size = 300 * 3 * 8 * 8 / 2**30
    assert source(memory_limit_gib=size).load(1).mapped_file is None
    assert source(memory_limit_gib=size * 0.999).load(1).mapped_file is not None
    for limit in (-1, float("nan"), "4"):
        with pytest.raises(ValueError, match="memory_limit_gib"):
            source(memory_limit_gib=limit).load(1)


def test_the_next_run_decodes_nothing(source, decoded, caplog):
    first = source().load(1)
    assert decoded == [300]
    with caplog.at_level("INFO"):
        second = source().load(2)
    assert decoded == [300]
    assert second.fingerprint == first.fingerprint
    assert f"are taken from {first.mapped_file}" in caplog.text


def test_whatever_changes_pixels_is_another_file(source, table, tmp_path, decoded):
    files = {
        source(**options).load(seed).mapped_file
        for options, seed in [
            ({}, 1),
            ({"image_size": 8}, 1),
            ({"mode": "L"}, 1),
            ({"max_samples": 30}, 1),
            ({"max_samples": 30}, 2),
            ({"image_size": 8, "frozen_crop": True}, 1),
            ({"image_size": 8, "frozen_crop": True}, 2),
        ]
    }
    assert len(files) == 7
    state = table.stat()
    os.utime(table, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    before = decoded[0]
    assert source().load(1).mapped_file not in files
    assert decoded == [before + 300]


def _alter(file):
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: os.truncate(file, file.stat().st_size - 100),
        _alter,
        lambda file: file.with_suffix(".json").write_text("{"),
        lambda file: file.with_suffix(".json").unlink(),
        lambda file: file.unlink(),
        lambda file: file.write_bytes(b""),
    ],
    ids=["shortened", "altered", "note garbled", "note lost", "images lost", "emptied"],
)
def test_a_damaged_file_is_made_again(source, decoded, damage):
    first = source().load(1)
    kept = first.inputs.clone()
    damage(first.mapped_file)
    again = source().load(1)
    assert decoded == [600]
    assert torch.equal(again.inputs, kept)
    assert again.fingerprint == first.fingerprint
    source().load(1)
    assert decoded == [600]


def test_a_copied_file_is_checked_by_its_sum_and_taken(source, decoded):
    file = source().load(1).mapped_file
    os.utime(file)
    assert source().load(1).mapped_file == file
    assert decoded == [300]


def test_what_a_killed_run_left_does_not_matter(source, cache, decoded):
    file = source().load(1).mapped_file
    file.rename(file.with_name(f".{file.name}.99.partial"))
    assert source().load(1).mapped_file == file
    assert decoded == [600]
    assert sorted(f.suffix for f in cache.iterdir()) == [".json", ".lock", ".npy"]


def test_a_set_that_cannot_be_decoded_leaves_no_file(tmp_path, write_parquet, cache):
    rows = {"img": [png(1)] * 200 + [b"\x89PNG broken"], "label": [0] * 201}
    file = write_parquet(tmp_path / "bad.parquet", rows)
    with pytest.raises(ValueError, match=r"bad\.parquet, row 200"):
        source_of(Parquet, path=file, memory_limit_gib=0, mode="RGB").load(1)
    assert [f.suffix for f in cache.iterdir()] == [".lock"]


def test_a_full_disk_is_said_before_decoding(source, monkeypatch, decoded):
    usage = namedtuple("usage", "total used free")(0, 0, 1000)
    monkeypatch.setattr(pixels.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(ValueError, match="FEDSAF_CACHE"):
        source().load(1)
    assert decoded == [0]


def test_two_at_once_decode_once(source, decoded):
    """The lock is one of the file system, which tells threads apart as it does processes."""
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: source().load(1), range(2)))
    assert decoded == [300]
    assert both[0].fingerprint == both[1].fingerprint


def test_a_mapped_set_travels_as_a_path(source):
    data = source().load(1)
    message = pickle.dumps(data)
    assert len(message) < data.inputs.numel() / 4
    back = pickle.loads(message)
    assert torch.equal(back.inputs, data.inputs)
    assert back.mapped_file == data.mapped_file
    held = source(memory_limit_gib=4).load(1)
    assert torch.equal(pickle.loads(pickle.dumps(held)).inputs, held.inputs)


def test_mapping_is_silent(source, request):
    torch.set_warn_always(True)  # else once per process
    request.addfinalizer(lambda: torch.set_warn_always(False))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        with pytest.raises(UserWarning, match="not writable"):
            torch.from_numpy(np.broadcast_to(np.zeros(1), (1,)))
        data = source().load(1)
        pickle.loads(pickle.dumps(data))
        next(ClientData(data.inputs, data.labels, torch.arange(9), torch.arange(9)).eval_batches("train", 4))


def test_mapped_inputs_stay_where_they_are(source):
    """On a GPU the batches move, not the set; ``meta`` stands for the GPU."""
    data = federate(source().load(1), IID(seed=1, generator="numpy"), 2, "random", 0.75)
    moved = data.to("meta")
    assert moved.dataset.inputs.device.type == "cpu"
    x, y = next(moved.client(0).eval_batches("train", 4))
    assert (x.device.type, y.device.type) == ("cpu", "cpu")
    held = federate(source(memory_limit_gib=4).load(1), IID(seed=1, generator="numpy"), 2, "random", 0.75)
    assert held.to("meta").dataset.inputs.device.type == "meta"
    for (a, u), (b, v) in zip(
        data.client(1).eval_batches("test", 7), held.client(1).eval_batches("test", 7), strict=True
    ):
        assert torch.equal(a, b)
        assert torch.equal(u, v)
    normalise = Normalise((0.5,), (0.5,))
    assert torch.equal(normalise(data.dataset.inputs[:3]), normalise(held.dataset.inputs[:3]))


def test_folders_and_drawn_images_are_mapped_too(tmp_path):
    for name in ("a", "b"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(3):
            (tmp_path / "photos" / name / f"{i}.png").write_bytes(png(10 * i))
    for kind, options in ((ImageFolder, {"path": tmp_path / "photos"}), (Synthetic, {"image_size": 8})):
        mapped = source_of(kind, **options, memory_limit_gib=0).load(1)
        assert mapped.mapped_file is not None
        assert mapped.fingerprint == source_of(kind, **options).load(1).fingerprint
    assert source_of(Synthetic, **options, memory_limit_gib=0).load(2).mapped_file != mapped.mapped_file
