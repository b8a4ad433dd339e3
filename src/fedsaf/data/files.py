"""Files behind data: what tells that one has changed, where things that take long to make wait, and mapped tensors."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import torch


def file_identity(file: Path) -> str:
    """Return path, size and time of change of a file."""
    state = file.stat()
    return f"{file.resolve()} {state.st_size} {state.st_mtime_ns}"


def cache_folder(kind: str) -> Path:
    """Return the folder for one kind of things, made if need be: below ``$FEDSAF_CACHE``, else ``~/.cache/fedsaf``."""
    folder = Path(os.environ.get("FEDSAF_CACHE") or "~/.cache/fedsaf").expanduser() / kind
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        remedy = "set FEDSAF_CACHE=<folder with room>"
        raise ValueError(f"the cache folder {folder} cannot be made ({error}); {remedy}") from error
    return folder


def mapped_tensor(file: Path) -> torch.Tensor:
    """Map an ``.npy`` file read-only; nothing may write to the tensor."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable")  # which is meant
        return torch.from_numpy(np.load(file, mmap_mode="r"))
