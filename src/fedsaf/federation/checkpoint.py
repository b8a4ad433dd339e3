"""Checkpoints: one file per client and one for the server, then a manifest that makes them count, written last.

A process that dies while writing leaves the former manifest and all its files untouched. Two generations are kept: if a
file of the newer one turns out cut short, the older one is used. Everything is loaded with ``weights_only=True``.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedsaf.core.files import remove_leftovers, replacing, write_atomically

MANIFEST, PREVIOUS = "manifest.json", "manifest.previous.json"
FORMAT = 2


class CheckpointError(RuntimeError):
    """A checkpoint cannot be used: cut short, or made under another configuration."""


UNREADABLE = (CheckpointError, OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError)
"""What reading a damaged generation may raise."""


@dataclass(frozen=True)
class Restored:
    """A checkpoint as read back; client states are read on demand.

    Attributes:
        manifest: plain values.
        server: tensors of the aggregators.
        problems: why a newer generation was passed over; empty if this is the newest.
    """

    manifest: dict[str, Any]
    server: dict[str, Tensor]
    problems: list[str]

    @property
    def round(self) -> int:
        """The last round that is complete."""
        return int(self.manifest["round"])


class Checkpoint:
    """The checkpoint folder of one run.

    Args:
        folder: made when first written to; every rank must see the same one.
        max_overhead: largest share of the running time that writing may take. A checkpoint that would exceed it is put
            off to a later round; the last round and an interruption always write. 1 closes every round with one. When
            a checkpoint is written never changes a result.
    """

    def __init__(self, folder: Path, max_overhead: float) -> None:
        if not 0 < max_overhead <= 1:
            raise ValueError(f"checkpoint_overhead is {max_overhead}; expected a share in (0, 1]")
        self.folder, self.max_overhead = folder, max_overhead
        self._cost = 0.0
        self._closed = time.monotonic()

    def due(self) -> bool:
        """Return whether enough time has passed since the last checkpoint for its cost to stay within bounds."""
        return self._cost <= self.max_overhead * (time.monotonic() - self._closed)

    def write_client(self, client: int, round: int, state: Mapping[str, Tensor]) -> dict[str, Any]:
        """Write one client's state; return its manifest entry."""
        return self._write(f"client_{client:05d}_round_{round:06d}.pt", state)

    def commit(self, round: int, server: Mapping[str, Tensor], values: Mapping[str, Any], began: float) -> None:
        """Write the server's state and the manifest, then drop the files that neither kept generation names.

        Args:
            round: the last complete round.
            server: state of the aggregators.
            values: plain JSON values: ``clients`` (manifest entries by id) and whatever identifies the run.
            began: ``time.monotonic()`` when writing of this checkpoint began.
        """
        entry = self._write(f"server_round_{round:06d}.pt", server)
        manifest = {"format": FORMAT, "round": round, "server": entry, **values}
        path = self.folder / MANIFEST
        if self._is_complete(path):  # one that was passed over on resume must not push out the one that was used
            os.replace(path, self.folder / PREVIOUS)
        write_atomically(path, json.dumps(manifest, indent=1, sort_keys=True))
        self._drop_unnamed()
        self.written(began)

    def written(self, began: float) -> None:
        """Note that a checkpoint whose writing began at ``began`` is closed."""
        self._closed = time.monotonic()
        self._cost = self._closed - began

    def load(self, identity: Mapping[str, Any]) -> Restored | None:
        """Read the newest usable checkpoint; None if there never was one.

        Args:
            identity: values that must stand in the manifest as they are.

        Raises:
            CheckpointError: if none of the kept generations is usable, or it belongs to another configuration.
        """
        problems = []
        for name in (MANIFEST, PREVIOUS):
            path = self.folder / name
            if not path.exists():
                continue
            try:
                manifest = json.loads(path.read_text())
                self._check_files(manifest, contents=True)
                server, _ = self.read(manifest["server"]), int(manifest["round"])
            except UNREADABLE as error:
                problems.append(f"{name}: {error}")
                continue
            for key, expected in identity.items():
                if manifest.get(key) != expected:
                    raise CheckpointError(
                        f"{path} was made with {key} {manifest.get(key)!r}, this run has {expected!r}; give the run "
                        "another results_root, or force=true to start it anew"
                    )
            return Restored(manifest, server, problems)
        if problems:
            raise CheckpointError(
                f"no usable checkpoint in {self.folder} ({'; '.join(problems)}); force=true starts the run anew"
            )
        return None

    def read(self, entry: Mapping[str, Any]) -> dict[str, Tensor]:
        """Read the tensors of one manifest entry."""
        return torch.load(self.folder / entry["file"], map_location="cpu", weights_only=True)

    def _is_complete(self, path: Path) -> bool:
        try:
            self._check_files(json.loads(path.read_text()), contents=False)
        except UNREADABLE:
            return False
        return True

    def _check_files(self, manifest: Mapping[str, Any], contents: bool) -> None:
        """Raise unless every file is there at its size and, if asked, with its checksum."""
        if manifest["format"] != FORMAT:
            raise CheckpointError(f"format {manifest['format']}, expected {FORMAT}")
        for entry in (manifest["server"], *manifest["clients"].values()):
            path = self.folder / entry["file"]
            size = path.stat().st_size if path.exists() else None
            if size != entry["bytes"]:
                raise CheckpointError(f"{entry['file']} has {size} bytes, expected {entry['bytes']}")
            if contents and _checksum(path) != entry["crc32"]:
                raise CheckpointError(f"{entry['file']} does not have the bytes that were written")

    def _write(self, name: str, state: Mapping[str, Tensor]) -> dict[str, Any]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with replacing(self.folder / name) as aside:
            torch.save(dict(state), aside)
            return {"file": name, "bytes": aside.stat().st_size, "crc32": _checksum(aside)}

    def _drop_unnamed(self) -> None:
        named = set()
        for name in (MANIFEST, PREVIOUS):
            path = self.folder / name
            if path.exists():
                with suppress(*UNREADABLE):
                    manifest = json.loads(path.read_text())
                    named |= {entry["file"] for entry in (manifest["server"], *manifest["clients"].values())}
        for path in self.folder.glob("*.pt"):
            if path.name not in named:
                path.unlink()
        remove_leftovers(self.folder)


def _checksum(path: Path) -> int:
    """CRC-32 of a file."""
    value = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            value = zlib.crc32(block, value)
    return value
