"""Where the states of clients wait between their turns."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

ClientState = dict[str, Tensor]
SCRATCH = "clients-"


class DiskStore(MutableMapping[int, ClientState]):
    """A mapping from client id to state that keeps every state in a file of its own.

    For federations whose states together do not fit into memory; slower than a dict by one read and one write per turn.
    The files are scratch, not the checkpoint: they vanish with the process, and what a killed one left behind with the
    next (`drop_scratch`).

    Args:
        parent: folder in which the scratch folder is made; None for the system's.
    """

    def __init__(self, parent: Path | None) -> None:
        self._folder = TemporaryDirectory(prefix=SCRATCH, dir=parent)
        self._ids: set[int] = set()

    def _path(self, client: int) -> Path:
        return Path(self._folder.name) / f"{client:06d}.pt"

    def __getitem__(self, client: int) -> ClientState:
        if client not in self._ids:
            raise KeyError(client)
        return torch.load(self._path(client), weights_only=True)

    def __setitem__(self, client: int, state: ClientState) -> None:
        torch.save(state, self._path(client))
        self._ids.add(client)

    def __delitem__(self, client: int) -> None:
        self._ids.remove(client)
        self._path(client).unlink()

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._ids))

    def __len__(self) -> int:
        return len(self._ids)


def drop_scratch(parent: Path) -> None:
    """Remove the scratch folders of processes that were killed; nobody may be at work in ``parent``."""
    for left in parent.glob(f"{SCRATCH}*"):
        shutil.rmtree(left)


STORES: dict[str, Callable[[Path | None], MutableMapping[int, ClientState]]] = {
    "memory": lambda parent: {},
    "disk": DiskStore,
}


def open_store(kind: str, parent: Path | None) -> MutableMapping[int, ClientState]:
    """Return an empty store: ``memory`` or ``disk``."""
    if kind not in STORES:
        raise ValueError(f"store {kind!r} is unknown; choose one of {', '.join(STORES)}")
    return STORES[kind](parent)
