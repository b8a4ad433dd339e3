"""One client's samples into a training and a test part; pure NumPy.

A split maps (n,) labels of one client, the share that trains in (0, 1) and a generator, of which it draws one
permutation, to positions. Dimension letters: n samples, m of them in classes of two and more.
"""

from __future__ import annotations

import numpy as np

from fedsaf.data.partition.partitioner import Rng

Parts = tuple[np.ndarray, np.ndarray]
"""Positions of the training and of the test part; the first in training order."""


def stratified_split(labels: np.ndarray, train_fraction: float, rng: Rng) -> Parts:
    """Split so that every class with a test sample has a training sample.

    Classes of one sample go to training. Of the m samples of the other classes, m - floor(train_fraction m) are for
    testing, shared out by largest remainder. A client with fewer than 3 samples tests on nothing.
    Deviation: such clients are kept, not dropped, as client ids decide architectures and seeds.
    """
    order = rng.permutation(len(labels))
    classes, counts = np.unique(labels, return_counts=True)
    room = np.where(counts > 1, counts - 1, 0)
    eligible = int(counts[counts > 1].sum())
    wanted = eligible - int(train_fraction * eligible)
    wanted = max(min(wanted, int(room.sum()), len(labels) - 2), 0)
    exact = np.where(counts > 1, counts * (1 - train_fraction), 0.0)
    take = np.minimum(exact.astype(int), room)
    while take.sum() > wanted:
        take[np.argmax(np.where(take > 0, take - exact, -np.inf))] -= 1
    while take.sum() < wanted:
        take[np.argmax(np.where(take < room, exact - take, -np.inf))] += 1
    rank = np.empty(len(labels), np.int64)
    shuffled = labels[order]
    for c in classes:
        own = np.flatnonzero(shuffled == c)
        rank[own] = np.arange(len(own))
    in_test = rank < take[np.searchsorted(classes, shuffled)]
    return order[~in_test], order[in_test]


def random_split(labels: np.ndarray, train_fraction: float, rng: Rng) -> Parts:
    """Split one permutation, test first, as the public generators do; a test class may be unseen in training.

    The test part has n - floor(train_fraction n) samples. Deviation: at least 2 samples train, if there are as many;
    the public code stops with an error at a client with a single sample. Of the labels only their number is used.
    """
    order = rng.permutation(len(labels))
    train = min(max(int(train_fraction * len(labels)), 2), len(labels))
    return order[len(labels) - train :], order[: len(labels) - train]


def held_out_fold(labels: np.ndarray, folds: int, fold: int) -> Parts:
    """Hold a fold of a training part out, for choosing weights without the test part.

    Samples are dealt to the folds in turn, class by class, so that each fold has the same share of every class as far
    as that goes, and the folds together are the whole part. Nothing is drawn. A class with fewer samples than folds is
    in some folds only; it may be held out whole.

    >>> [part.tolist() for part in held_out_fold(np.array([0, 1, 0, 1, 0]), 2, 0)]
    [[1, 2], [0, 4, 3]]

    Args:
        labels: (n,) labels of one client's training part, in training order.
        folds: their number k.
        fold: which one is held out, in [0, k).
    """
    dealt = np.argsort(labels, kind="stable")
    is_held = np.zeros(len(labels), bool)
    is_held[dealt[fold::folds]] = True
    return np.flatnonzero(~is_held), dealt[fold::folds]


def ordered_split(num_samples: int, train_fraction: float, gap: int) -> Parts:
    """Split by order, for samples that overlap with their neighbours, such as the windows of a text.

    The first floor(train_fraction n) samples train, the next ``gap`` are used by nobody, the others test. A client of
    n <= floor(train_fraction n) + gap samples tests on nothing.

    >>> [part.tolist() for part in ordered_split(10, 0.5, 2)]
    [[0, 1, 2, 3, 4], [7, 8, 9]]
    """
    end = int(train_fraction * num_samples)
    return np.arange(end), np.arange(min(end + gap, num_samples), num_samples)
