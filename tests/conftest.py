"""Shared by all tests: one thread, no network, nothing written outside temporary folders."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.pop("WANDB_API_KEY", None)
os.environ.pop("RESULTS_ROOT", None)

import pytest
import torch

from fedsaf.core.resolvers import register

register()  # many tests compose configurations themselves


@pytest.fixture(autouse=True)
def one_thread():
    """A convolution differs in its last bits between one and two threads."""
    torch.set_num_threads(1)
