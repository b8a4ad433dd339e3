"""From a data set and a partition rule to the training and test part of every client."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from fedsaf.data.batches import ClientData
from fedsaf.data.datasets import LabelledDataset, Samples
from fedsaf.data.partition.partitioner import Assignment, Partitioner, Rng
from fedsaf.data.partition.record import PartitionRecord
from fedsaf.data.partition.splits import Parts, held_out_fold, ordered_split, random_split, stratified_split

log = logging.getLogger(__name__)

_SPLITS: dict[str, Callable[[np.ndarray, float, Rng], Parts]] = {"stratified": stratified_split, "random": random_split}


@dataclass(frozen=True)
class Validation:
    """What is scored in place of the test parts of all other runs, which nobody then sees.

    A fold of every client's training part, or the test parts of samples that no other run has, or a fold of these.

    Attributes:
        subset: which of the disjoint subsets of ``dataset.max_samples`` the run is on; 0 that of all other runs.
        folds: into how many the training parts are dealt, at least 2; None with another subset, whose own test parts
            are scored.
        fold: which one is held out, in [0, folds).

    Raises:
        ValueError: outside these ranges, or neither of the two.
    """

    subset: int
    folds: int | None
    fold: int

    def __post_init__(self) -> None:
        if self.subset < 0:
            raise ValueError(f"validation.subset={self.subset}; expected at least 0")
        if self.folds is None:
            if not self.subset:
                raise ValueError(
                    "validation.folds=null scores the test parts that all runs score; set validation.subset=1"
                )
        elif self.folds < 2:
            raise ValueError(f"validation.folds={self.folds}; expected at least 2")
        elif not 0 <= self.fold < self.folds:
            raise ValueError(f"validation.fold={self.fold}; expected 0 to {self.folds - 1}")


@dataclass(frozen=True, eq=False)
class FederatedData:
    """The pooled data set and who holds which samples of it.

    Attributes:
        dataset: all samples.
        record: index lists per client.
    """

    dataset: LabelledDataset
    record: PartitionRecord

    @property
    def num_clients(self) -> int:
        """Number of clients N."""
        return self.record.num_clients

    def client(self, client: int) -> ClientData:
        """Return one client's view, on the device of the inputs."""
        device = self.dataset.inputs.device
        train, test = (torch.from_numpy(part[client]).to(device) for part in (self.record.train, self.record.test))
        return ClientData(self.dataset.inputs, self.dataset.labels, train, test)

    def to(self, device: torch.device | str, channels_last: bool = False) -> FederatedData:
        """Return a copy whose images lie on ``device``, in the memory format that every batch then has.

        Inputs that map a file stay as they are, since they may be larger than any memory.
        """
        if self.dataset.mapped_file is not None:
            return self
        layout = torch.channels_last if channels_last else torch.contiguous_format
        inputs = self.dataset.inputs.to(device).contiguous(memory_format=layout)
        return replace(self, dataset=replace(self.dataset, inputs=inputs, labels=self.dataset.labels.to(device)))


def federate(
    dataset: Samples,
    partitioner: Partitioner,
    num_clients: int,
    split: str,
    train_fraction: float,
    validation: Validation | None = None,
) -> FederatedData:
    """Assign the samples to clients, then split each client's samples.

    Both steps draw from one generator, made from the partition seed: equal arguments give equal bytes anywhere.

    Args:
        dataset: pooled samples.
        partitioner: the rule, its seed and its kind of generator.
        num_clients: N.
        split: ``stratified`` (classes of one sample train), ``random`` (the papers' and public code's), or
            ``common``: only the first official part is partitioned and trains whole, in an order drawn per client,
            and every client tests on all other parts (FedProc). Not used by a data set with a split of its own.
        train_fraction: share of a client's samples that trains; not used by ``common`` or a split of its own.
        validation: what is scored in place of the test parts; None scores these. Another subset is up to the source.

    Raises:
        ValueError: an unknown split, a fraction outside (0, 1), ``common`` without a second official part, a rule
            that cannot serve N clients, or one that scatters samples which overlap with their neighbours.
    """
    if split not in (*_SPLITS, "common"):
        raise ValueError(f"split={split!r} is unknown; choose {', '.join(_SPLITS)} or common")
    if not 0 < train_fraction < 1:
        raise ValueError(f"train_fraction={train_fraction} must lie between 0 and 1")
    labels = dataset.labels.cpu().numpy()
    groups = None if dataset.groups is None else dataset.groups.cpu().numpy()
    pool = _pool_size(dataset, split)
    rng = partitioner.rng()
    assignment = partitioner(labels[:pool], None if groups is None else groups[:pool], num_clients, rng)
    train, test, rule = _split(dataset, assignment.indices, labels, split, train_fraction, rng)
    if validation is not None:
        if validation.folds is not None:
            if dataset.own_split is not None:
                raise ValueError(
                    f"validation: neighbouring samples of {dataset.name} overlap, so no fold of them is unseen"
                )
            folds = [held_out_fold(labels[own], validation.folds, validation.fold) for own in train]
            train, test = _picked(train, folds)
        rule["validation"] = asdict(validation)
    fitted = dataset.fitted(np.unique(np.concatenate(train)))
    record = PartitionRecord(
        train=train,
        test=test,
        train_counts=_counts(labels, train, dataset.num_classes),
        test_counts=_counts(labels, test, dataset.num_classes),
        class_names=dataset.class_names,
        facts=_facts(dataset, partitioner, assignment, pool) | rule | dict(fitted.learnt),
        client_groups=tuple(dataset.group_names[group] for group in assignment.groups or ()),
    )
    for note in record.notes:
        log.warning("partition: %s", note)
    return FederatedData(fitted, record)


def _pool_size(dataset: Samples, split: str) -> int:
    """Return how many samples, from the first on, are shared out."""
    if split != "common":
        return len(dataset)
    if dataset.own_split is not None:
        raise ValueError(
            f"split=common: the samples of {dataset.name} are split by their order, whatever else protocol.split says; "
            "take protocol.split=stratified"
        )
    if len(dataset.parts) < 2:
        raise ValueError(f"split=common needs an official test part; {dataset.name} has only {dataset.parts}")
    return next(iter(dataset.parts.values()))


def _split(
    dataset: Samples, owned: list[np.ndarray], labels: np.ndarray, split: str, train_fraction: float, rng: Rng
) -> tuple[list[np.ndarray], list[np.ndarray], dict[str, Any]]:
    """Return every client's training and test samples, and what the record says about the rule."""
    if split == "common":
        pool = _pool_size(dataset, split)
        train = [own[rng.permutation(len(own))] for own in owned]
        return train, [np.arange(pool, len(labels))] * len(train), {"split": split, "train_fraction": train_fraction}
    if dataset.own_split is not None:
        _check_runs(dataset, owned)
        order = asdict(dataset.own_split)
        splits = [ordered_split(len(own), **order) for own in owned]
        return *_picked(owned, splits), {"split": "ordered", **order}
    splits = [_SPLITS[split](labels[own], train_fraction, rng) for own in owned]
    return *_picked(owned, splits), {"split": split, "train_fraction": train_fraction}


def _picked(owned: list[np.ndarray], splits: list[Parts]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the samples at the positions of both parts, client by client."""
    pairs = list(zip(owned, splits, strict=True))
    return [own[a] for own, (a, _) in pairs], [own[b] for own, (_, b) in pairs]


def _check_runs(dataset: Samples, owned: list[np.ndarray]) -> None:
    """Raise unless every client holds consecutive samples of one group, since these overlap with their neighbours."""
    for client, own in enumerate(owned):
        same = dataset.groups is None or len(np.unique(dataset.groups[own])) == 1
        if not same or (np.diff(own) != 1).any():
            raise ValueError(
                f"neighbouring samples of {dataset.name} overlap, so a client must hold consecutive samples of one "
                f"user; client {client} does not; choose partition=by_user"
            )


def _facts(dataset: Samples, partitioner: Partitioner, assignment: Assignment, pool: int) -> dict[str, Any]:
    return {
        "dataset": dataset.name,
        "fingerprint": dataset.fingerprint,
        "parts": dataset.parts,
        "subset": dataset.subset,
        "label_mapping": dataset.label_mapping,
        "rule": type(partitioner).__name__,
        "parameters": asdict(partitioner),
        "tries": assignment.tries,
        "moved": assignment.moved,
        "left_out": {**dataset.left_out, **assignment.left_out},
        "unused": pool - sum(map(len, assignment.indices)),
        "numpy": np.__version__,
    }


def _counts(labels: np.ndarray, indices: list[np.ndarray], num_classes: int) -> np.ndarray:
    return np.stack([np.bincount(labels[own], minlength=num_classes) for own in indices])
