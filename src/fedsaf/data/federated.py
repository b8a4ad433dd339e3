"""From a data set and a partition rule to the training and test part of every client."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch

from fedsaf.data.batches import ClientData
from fedsaf.data.datasets import ImageDataset
from fedsaf.data.partition import Assignment, Partitioner, Rng
from fedsaf.data.record import PartitionRecord
from fedsaf.data.splits import Parts, random_split, stratified_split

log = logging.getLogger(__name__)

_SPLITS: dict[str, Callable[[np.ndarray, float, Rng], Parts]] = {"stratified": stratified_split, "random": random_split}


@dataclass(frozen=True, eq=False)
class FederatedData:
    """The pooled data set and who holds which samples of it.

    Attributes:
        dataset: all samples.
        record: index lists per client.
    """

    dataset: ImageDataset
    record: PartitionRecord

    @property
    def num_clients(self) -> int:
        """Number of clients N."""
        return self.record.num_clients

    def client(self, client: int) -> ClientData:
        """Return one client's view, on the device of the images."""
        device = self.dataset.images.device
        train, test = (torch.from_numpy(part[client]).to(device) for part in (self.record.train, self.record.test))
        return ClientData(self.dataset.images, self.dataset.labels, train, test)

    def to(self, device: torch.device | str, channels_last: bool = False) -> FederatedData:
        """Return a copy whose images lie on ``device``, in the memory format that every batch then has."""
        layout = torch.channels_last if channels_last else torch.contiguous_format
        images = self.dataset.images.to(device).contiguous(memory_format=layout)
        return replace(self, dataset=replace(self.dataset, images=images, labels=self.dataset.labels.to(device)))


def federate(
    dataset: ImageDataset, partitioner: Partitioner, num_clients: int, split: str, train_fraction: float
) -> FederatedData:
    """Assign the samples to clients, then split each client's samples.

    Both steps draw from one generator, made from the partition seed: equal arguments give equal bytes anywhere.

    Args:
        dataset: pooled samples.
        partitioner: the rule, its seed and its kind of generator.
        num_clients: N.
        split: ``stratified`` (classes of one sample train), ``random`` (the papers' and public code's), or
            ``common``: only the first official part is partitioned and trains whole, in an order drawn per client,
            and every client tests on all other parts (FedProc).
        train_fraction: share of a client's samples that trains; not used by ``common``.

    Raises:
        ValueError: an unknown split, a fraction outside (0, 1), ``common`` without a second official part, or a rule
            that cannot serve N clients.
    """
    if split not in (*_SPLITS, "common"):
        raise ValueError(f"split={split!r} is unknown; choose {', '.join(_SPLITS)} or common")
    if not 0 < train_fraction < 1:
        raise ValueError(f"train_fraction={train_fraction} must lie between 0 and 1")
    labels = dataset.labels.cpu().numpy()
    groups = None if dataset.groups is None else dataset.groups.cpu().numpy()
    pool = len(labels)
    if split == "common":
        if len(dataset.parts) < 2:
            raise ValueError(f"split=common needs an official test part; {dataset.name} has only {dataset.parts}")
        pool = next(iter(dataset.parts.values()))
    rng = partitioner.rng()
    assignment = partitioner(labels[:pool], None if groups is None else groups[:pool], num_clients, rng)
    if split == "common":
        train = [own[rng.permutation(len(own))] for own in assignment.indices]
        test = [np.arange(pool, len(labels))] * num_clients
    else:
        parts = [(own, _SPLITS[split](labels[own], train_fraction, rng)) for own in assignment.indices]
        train, test = [own[a] for own, (a, _) in parts], [own[b] for own, (_, b) in parts]
    facts = _facts(dataset, partitioner, assignment, pool) | {"split": split, "train_fraction": train_fraction}
    record = PartitionRecord(
        train=train,
        test=test,
        train_counts=_counts(labels, train, dataset.num_classes),
        test_counts=_counts(labels, test, dataset.num_classes),
        class_names=dataset.class_names,
        facts=facts,
    )
    for note in record.notes:
        log.warning("partition: %s", note)
    return FederatedData(dataset, record)


def _facts(dataset: ImageDataset, partitioner: Partitioner, assignment: Assignment, pool: int) -> dict:
    return {
        "dataset": dataset.name,
        "fingerprint": dataset.fingerprint,
        "parts": dataset.parts,
        "label_mapping": dataset.label_mapping,
        "rule": type(partitioner).__name__,
        "parameters": asdict(partitioner),
        "tries": assignment.tries,
        "moved": assignment.moved,
        "unused": pool - sum(map(len, assignment.indices)),
        "numpy": np.__version__,
    }


def _counts(labels: np.ndarray, indices: list[np.ndarray], num_classes: int) -> np.ndarray:
    return np.stack([np.bincount(labels[own], minlength=num_classes) for own in indices])
