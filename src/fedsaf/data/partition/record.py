"""The partition as it was made: index lists, counts, parameters, hash; saved in the run folder."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedsaf.core.files import replacing, write_atomically


@dataclass(frozen=True, eq=False)
class PartitionRecord:
    """Train and test indices of every client into the pooled data set.

    Attributes:
        train: N arrays of int64 indices, in training order.
        test: N arrays of int64 indices.
        train_counts: (N, C) samples per client and class in training.
        test_counts: (N, C) the same for testing.
        class_names: C names.
        facts: plain values saved beside the hash: data set, fingerprint, parts, rule, parameters, split, tries,
            moved and unused samples, and what the rule left out.
        client_groups: name of the one group (domain, user) that each client holds; empty if they hold no one group.

    Raises:
        ValueError: as many groups as clients are expected, or none.
    """

    train: Sequence[np.ndarray]
    test: Sequence[np.ndarray]
    train_counts: np.ndarray
    test_counts: np.ndarray
    class_names: tuple[str, ...]
    facts: dict[str, Any]
    client_groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.client_groups and len(self.client_groups) != len(self.train):
            raise ValueError(f"client_groups has {len(self.client_groups)} names for {len(self.train)} clients")

    @property
    def num_clients(self) -> int:
        """Number of clients N."""
        return len(self.train)

    @cached_property
    def client_names(self) -> tuple[str, ...]:
        """What to call the clients: their group, ``group/1``, ``group/2`` where several share one, else their id."""
        if not self.client_groups:
            return tuple(map(str, range(self.num_clients)))
        holders, met, names = Counter(self.client_groups), Counter[str](), []
        for group in self.client_groups:
            met[group] += 1
            names.append(group if holders[group] == 1 else f"{group}/{met[group]}")
        return tuple(names)

    @cached_property
    def hash(self) -> str:
        """SHA-256 of all index lists and nothing else: equal splits, equal hash, in any process."""
        digest = hashlib.sha256()
        for indices in (part for client in zip(self.train, self.test, strict=True) for part in client):
            digest.update(len(indices).to_bytes(8, "little"))
            digest.update(np.ascontiguousarray(indices, "<i8").tobytes())
        return digest.hexdigest()

    @property
    def unseen(self) -> np.ndarray:
        """(N,) number of classes that a client is tested on but never trains on."""
        return ((self.test_counts > 0) & (self.train_counts == 0)).sum(1)

    @property
    def notes(self) -> list[str]:
        """What a reader of the table should know, one sentence each."""
        facts, unseen = self.facts, self.unseen
        left_out = [f"{number} {what}" for what, number in facts["left_out"].items() if number]
        untested = ", ".join(str(client) for client, test in enumerate(self.test) if len(test) == 0)
        validation = facts.get("validation") or {"subset": 0, "folds": None}
        subset, fold = validation["subset"], None if validation["folds"] is None else validation["fold"]
        pairs = f"{(unseen > 0).sum()} clients are tested on classes they never train on ({unseen.sum()} pairs)"
        notes = {
            f"samples of subset {subset}, which no run outside of validation sees": subset,
            f"scored on held-out fold {fold} of the training parts; nobody sees the test parts": fold is not None,
            f"{facts['moved']} samples were moved to clients below the minimum size": facts["moved"],
            f"{facts['unused']} samples are held by no client": facts["unused"],
            f"left out: {', '.join(left_out)}": left_out,
            pairs: unseen.any(),
            f"clients without a test part: {untested}": untested,
        }
        return [note for note, holds in notes.items() if holds]

    def save(self, folder: Path) -> None:
        """Write ``partition.npz`` (indices) and ``partition.json`` (hash, facts, names, sizes, counts, notes)."""
        arrays = {f"{part}_{i}": a for part in ("train", "test") for i, a in enumerate(getattr(self, part))}
        with replacing(folder / "partition.npz") as aside, aside.open("wb") as file:
            np.savez_compressed(file, **arrays)
        content = {
            "hash": self.hash,
            **self.facts,
            "num_clients": self.num_clients,
            "client_names": list(self.client_names),
            "client_groups": list(self.client_groups),
            "class_names": list(self.class_names),
            "sizes": {"train": [len(a) for a in self.train], "test": [len(a) for a in self.test]},
            "counts": {"train": self.train_counts.tolist(), "test": self.test_counts.tolist()},
            "unseen": self.unseen.tolist(),
            "notes": self.notes,
        }
        write_atomically(folder / "partition.json", json.dumps(content, indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path) -> PartitionRecord:
        """Read what ``save`` wrote.

        Raises:
            ValueError: the index lists do not have the hash that was written with them.
        """
        content = json.loads((folder / "partition.json").read_text(encoding="utf-8"))
        with np.load(folder / "partition.npz") as arrays:
            parts = {part: [arrays[f"{part}_{i}"] for i in range(content["num_clients"])] for part in ("train", "test")}
        counts, expected = content.pop("counts"), content.pop("hash")
        for derived in ("num_clients", "client_names", "sizes", "unseen", "notes"):
            del content[derived]
        record = cls(
            train=parts["train"],
            test=parts["test"],
            train_counts=np.array(counts["train"]),
            test_counts=np.array(counts["test"]),
            client_groups=tuple(content.pop("client_groups")),
            class_names=tuple(content.pop("class_names")),
            facts=content,
        )
        if record.hash != expected:
            raise ValueError(f"{folder}: partition.npz has hash {record.hash}, partition.json says {expected}")
        return record
