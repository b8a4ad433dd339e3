"""Sets that are mapped from a file: the same bits, decoded once, shared, and made again if the file is not intact."""

import json
import os
import pickle
import subprocess
import sys
import warnings
from collections import namedtuple
from pathlib import Path

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

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDSAF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pixels"


@pytest.fixture
def table(tmp_path, write_parquet, make_png):
    """300 images in one file: more than two blocks."""
    rows = {
        "img": [{"bytes": make_png(i % 250), "path": None} for i in range(300)],
        "label": [i % 3 for i in range(300)],
    }
    return write_parquet(tmp_path / "set" / "train.parquet", rows, {"img": "image", "label": ["a", "b", "c"]})


@pytest.fixture
def source(table, table_options):
    """Return the source with options; mapped unless they say otherwise."""

    def make(**options):
        return Parquet(path=str(table), **{**table_options, "memory_limit_gib": 0, **options})

    return make


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


def _shorten(file):
    os.truncate(file, file.stat().st_size - 100)


def _alter(file):
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)


def _garble_note(file):
    file.with_suffix(".json").write_text("{")


def _lose_note(file):
    file.with_suffix(".json").unlink()


def _lose_images(file):
    file.unlink()


def _empty(file):
    file.write_bytes(b"")


@pytest.mark.parametrize("damage", [_shorten, _alter, _garble_note, _lose_note, _lose_images, _empty])
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


def test_a_set_that_cannot_be_decoded_leaves_no_file(tmp_path, write_parquet, make_png, table_options, cache):
    rows = {"img": [make_png(1)] * 200 + [b"\x89PNG broken"], "label": [0] * 201}
    file = write_parquet(tmp_path / "bad.parquet", rows)
    with pytest.raises(ValueError, match=r"bad\.parquet, row 200"):
        Parquet(path=str(file), **{**table_options, "memory_limit_gib": 0, "mode": "RGB"}).load(1)
    assert [f.suffix for f in cache.iterdir()] == [".lock"]


def test_a_full_disk_is_said_before_decoding(source, monkeypatch, decoded):
    usage = namedtuple("usage", "total used free")(0, 0, 1000)
    monkeypatch.setattr(pixels.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(ValueError, match="FEDSAF_CACHE"):
        source().load(1)
    assert decoded == [0]


def test_two_processes_at_once_decode_once(table, table_options, cache):
    script = (
        "import sys, json; from fedsaf.data import decode; from fedsaf.data.sources.image_tables import Parquet\n"
        "plain, count = decode._decoded_block, []\n"
        "decode._decoded_block = lambda *args: (count.append(len(args[0])), plain(*args))[1]\n"
        "data = Parquet(**json.loads(sys.argv[1])).load(1)\n"
        "print(sum(count), data.fingerprint)"
    )
    options = json.dumps({"path": str(table), **table_options, "memory_limit_gib": 0})
    command = [sys.executable, "-c", script, options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(2)]
    answers = [process.communicate(timeout=120)[0].split() for process in both]
    assert sorted(count for count, _ in answers) == ["0", "300"]
    assert len({fingerprint for _, fingerprint in answers}) == 1


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


def test_folders_and_drawn_images_are_mapped_too(tmp_path, common, make_png):
    for name in ("a", "b"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(3):
            (tmp_path / "photos" / name / f"{i}.png").write_bytes(make_png(10 * i))
    drawn = {"num_samples": 30, "num_classes": 3, "channels": 3, "noise": 1.0, "image_size": 8, "group_names": None}
    for kind, options in ((ImageFolder, {"path": str(tmp_path / "photos"), "splits": None}), (Synthetic, drawn)):
        mapped = kind(**{**common, **options, "memory_limit_gib": 0}).load(1)
        assert mapped.mapped_file is not None
        assert mapped.fingerprint == kind(**{**common, **options}).load(1).fingerprint
    assert Synthetic(**{**common, **drawn, "memory_limit_gib": 0}).load(2).mapped_file != mapped.mapped_file


def test_rows_are_streamed_over_row_groups_and_only_kept_ones_are_read(tmp_path, make_png, table_options):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [make_png(i) for i in range(100)]
    for i in range(100):
        if i % 2:
            rows[i] = b"never decoded"
    pq.write_table(
        pa.table({"img": rows, "label": [i % 2 for i in range(100)]}), tmp_path / "a.parquet", row_group_size=7
    )
    part = Parquet(path=str(tmp_path / "a.parquet"), **{**table_options, "mode": "RGB"}).read(1).items
    keep = np.array([0, 6, 8, 48, 50, 98])
    assert [image.item for image in part.rows(keep)] == [make_png(i) for i in keep]
    assert [image.place for image in part.rows(keep)][-1] == "a.parquet, row 98"
    assert [image.item for image in part.rows(keep)] == [make_png(i) for i in keep]  # anew
