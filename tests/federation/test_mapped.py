"""Whole runs on images that are mapped from a file, on one rank and on two; and how often images are decoded."""

import dataclasses
from pathlib import Path

import pytest
import torch

from fedsaf.data import decode
from fedsaf.federation.job import perform
from fedsaf.federation.launch import launch
from tests.federation.harness import compare, fresh, make_job, run_job


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDSAF_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def mapped(words, tmp_path):
    job = make_job([*words, "dataset.memory_limit_gib=0"], tmp_path / "never written")
    assert job.data.dataset.mapped_file is not None
    return job


def test_a_mapped_run_writes_the_bytes_of_one_in_memory(straight, mapped, tmp_path):
    run_job(fresh(mapped, tmp_path / "run"))
    compare(straight, tmp_path / "run")


def _perform_and_note_maps(fabric, stop, job):
    perform(fabric, stop, job)
    name = str(job.data.dataset.mapped_file)
    held = [line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(name)]
    (job.outputs.folder / f"maps{fabric.global_rank}").write_text("\n".join(held))


@pytest.mark.distributed
def test_two_ranks_read_one_file_and_equal_one(straight, mapped, tmp_path):
    job = fresh(mapped, tmp_path / "run")
    job = dataclasses.replace(job, fabric=dataclasses.replace(job.fabric, devices=2))
    job.outputs.folder.mkdir()
    shared = Path("/dev/shm")
    launch(job.fabric, _perform_and_note_maps if shared.exists() else perform, job)
    compare(straight, job.outputs.folder)
    if shared.exists():
        for rank in range(2):
            assert " r--s " in (job.outputs.folder / f"maps{rank}").read_text()  # read-only, the file itself


def test_no_image_is_decoded_twice_in_a_run(words, tmp_path, monkeypatch):
    decoded = []
    plain = decode._decoded_block

    def counting(block, shape, resize):
        decoded.extend(row.place for row in block)
        return plain(block, shape, resize)

    monkeypatch.setattr(decode, "_decoded_block", counting)
    job = make_job(words, tmp_path / "run")
    assert len(decoded) == len(set(decoded)) == len(job.data.dataset)
    run_job(job)
    assert len(decoded) == len(job.data.dataset)


def test_batches_of_a_mapped_set_go_to_the_device(mapped):
    """``meta`` stands for a GPU."""
    loaders = mapped.loaders(torch.device("meta"))
    assert loaders[0].data.inputs.device.type == "cpu"
    for batches in (
        loaders[0].clean_pass(),
        loaders[0].test_pass(),
        loaders[0].train_pass(torch.arange(loaders[0].num_train)),
    ):
        for x, y in batches:
            assert (x.device.type, y.device.type, x.dtype) == ("meta", "meta", torch.float32)
