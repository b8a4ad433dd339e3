"""Slow twins: double loops in NumPy, written from the definitions and sharing nothing with the fast code."""

import numpy as np
import pytest
import torch

from fedsaf.losses.contrastive import batch_contrastive, contrastive
from fedsaf.losses.structural import gcsa, rcsa
from fedsaf.prototypes.class_table import ClassTable


def gcsa_by_loops(P, Q):
    def gram(X):
        mean = [sum(row[k] for row in X) / len(X) for k in range(X.shape[1])]
        K = np.zeros((len(X), len(X)))
        for a in range(len(X)):
            for b in range(len(X)):
                K[a, b] = sum((X[a, k] - mean[k]) * (X[b, k] - mean[k]) for k in range(X.shape[1]))
        return K

    K, L = gram(P), gram(Q)
    return 1 - np.sum(K * L) / np.sqrt(np.sum(K * K) * np.sum(L * L))


def gcsa_by_features(P, Q):
    P, Q = P - P.mean(0), Q - Q.mean(0)
    return 1 - np.linalg.norm(P.T @ Q) ** 2 / (np.linalg.norm(P.T @ P) * np.linalg.norm(Q.T @ Q))


def rcsa_by_loops(P, Q):
    def distances(X):
        r = []
        for a in range(len(X)):
            for b in range(a + 1, len(X)):
                r.append(np.sum((X[a] / np.linalg.norm(X[a]) - X[b] / np.linalg.norm(X[b])) ** 2))
        return np.array(r)

    r, s = distances(P), distances(Q)
    return 1 - r @ s / np.sqrt((r @ r) * (s @ s))


def cosine_of(a, b):
    return a @ b / (np.linalg.norm(a) * np.linalg.norm(b))


def contrastive_by_loops(P, labels, table, mask, tau):
    values = []
    for row, label in zip(P, labels, strict=True):
        if mask[label]:
            scores = [cosine_of(row, table[c]) / tau for c in range(len(table)) if mask[c]]
            values.append(np.log(np.sum(np.exp(scores))) - cosine_of(row, table[label]) / tau)
    return np.mean(values)


def batch_contrastive_by_loops(P, labels, table, tau):
    total = 0.0
    for c in range(len(table)):
        scores = np.array([cosine_of(row, table[c]) / tau for row in P])
        own = [scores[a] - np.log(np.exp(scores).sum()) for a in range(len(P)) if labels[a] == c]
        total -= np.mean(own) if own else 0.0
    return total / len(table)


@pytest.mark.parametrize(("n", "d"), [(3, 5), (8, 5), (20, 30)])
def test_structural(draw, n, d):
    P, Q = draw(n, d), draw(n, d)
    assert gcsa(P, Q).item() == pytest.approx(gcsa_by_loops(P.numpy(), Q.numpy()), abs=1e-12)
    assert gcsa(P, Q).item() == pytest.approx(gcsa_by_features(P.numpy(), Q.numpy()), abs=1e-12)
    assert rcsa(P, Q).item() == pytest.approx(rcsa_by_loops(P.numpy(), Q.numpy()), abs=1e-12)


@pytest.mark.parametrize("tau", [1.0, 0.07])
def test_contrastive_with_missing_prototypes(draw, tau):
    table = draw(6, 5)
    mask = torch.tensor([True, False, True, True, False, True])
    table[~mask] = 0
    P, labels = draw(9, 5), torch.tensor([0, 1, 2, 3, 4, 5, 0, 1, 2])
    fast = contrastive(P, labels, ClassTable(table, mask), tau).item()
    assert fast == pytest.approx(contrastive_by_loops(P.numpy(), labels, table.numpy(), mask, tau), abs=1e-12)


def test_batch_contrastive_with_absent_class(draw):
    table, P, labels = draw(4, 5), draw(7, 5), torch.tensor([0, 0, 1, 3, 3, 3, 0])
    fast = batch_contrastive(P, labels, ClassTable(table, torch.ones(4, dtype=torch.bool)), 0.5).item()
    assert fast == pytest.approx(batch_contrastive_by_loops(P.numpy(), labels, table.numpy(), 0.5), abs=1e-12)


def test_contrastive_gradients(draw):
    table = ClassTable(draw(5, 4), torch.tensor([True, True, False, True, True]))
    table.values[2] = 0
    P, labels = draw(6, 4).requires_grad_(), torch.tensor([0, 1, 2, 3, 4, 4])
    for loss in (contrastive, batch_contrastive):
        assert torch.autograd.gradcheck(lambda P, loss=loss: loss(P, labels, table, 0.5), (P,), atol=1e-7)
