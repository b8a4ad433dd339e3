import math

import numpy as np
import pytest
import torch

from fedsaf.core.types import Upload
from fedsaf.evaluation.diagnostics import PrototypeDiagnostics, effective_dimension, margins
from fedsaf.losses.decomposition import decompose


def upload(client, labels, means, d=2):
    message = {"labels": torch.tensor(labels, dtype=torch.int64), "values": torch.tensor(means).reshape(len(labels), d)}
    return Upload(client, message, num_samples=1)


def numbers(report):
    for value in report.values():
        if isinstance(value, dict):
            yield from numbers(value)
        else:
            yield value


@pytest.mark.parametrize(("n", "d"), [(40, 10), (10, 40), (12, 12)])
@pytest.mark.parametrize("energy", [0.5, 0.9, 0.999, 1.0])
def test_effective_dimension_against_singular_values(n, d, energy):
    generator = torch.Generator().manual_seed(n + d)
    prototypes = torch.randn(n, d, generator=generator) * torch.linspace(3, 0.1, d) + 0.5
    X = prototypes.double().numpy()
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    spectrum = np.linalg.svd(X - X.mean(0), compute_uv=False) ** 2
    shares = np.cumsum(spectrum) / spectrum.sum()
    # 1e-12: at energy 1 the share reaches 1 up to rounding only.
    expected = next(k + 1 for k, share in enumerate(shares) if share >= energy - 1e-12)
    assert abs(effective_dimension(prototypes, energy) - expected) <= (1 if energy == 1.0 else 0)


def test_effective_dimension_of_known_sets():
    axes = torch.eye(5)
    # +-e_1..e_5 are centred and spread evenly over five directions: 90 % needs all five.
    assert effective_dimension(torch.cat([axes, -axes])) == 5
    assert effective_dimension(torch.cat([axes, -axes]), energy=0.55) == 3
    assert effective_dimension(torch.stack([axes[0], -axes[0], 2 * axes[0]])) == 1


def test_effective_dimension_without_spread():
    row = torch.tensor([[0.1, 0.7, 1000.3]])
    for prototypes in (row[:0], row, row.expand(9, 3), row * torch.arange(1.0, 6.0)[:, None], torch.zeros(4, 3)):
        assert effective_dimension(prototypes) == 0


def test_margins_by_hand():
    prototypes = torch.tensor([[0.0, 0.0], [3.0, 4.0], [3.0, 5.0]])
    assert margins(prototypes) == pytest.approx({"margin_mean": 7 / 3, "margin_min": 1, "margin_max": 5})
    assert margins(prototypes[:1]) == {}
    assert margins(prototypes[:0]) == {}


def test_report():
    uploads = [
        upload(2, [0, 1], [[0.0, 1.0], [-1.0, 0.0]]),
        upload(0, [1, 3], [[0.0, 2.0], [2.0, 0.0]]),
        upload(1, [], []),
    ]
    broadcast = {"labels": torch.tensor([0, 1]), "values": torch.tensor([[1.0, 0.0], [0.0, 1.0]])}
    report = PrototypeDiagnostics()(uploads, broadcast)
    # Client 2 holds the broadcast turned by a quarter: |e2 - e1|^2 + |-e1 - e2|^2 = 4, all of it rigid.
    # Client 0 shares class 1 alone, in the direction of the broadcast.
    assert list(report["per_client"]) == [0, 1, 2]
    assert report["per_client"][2] == pytest.approx(
        {
            "classes": 2,
            "margin_mean": math.sqrt(2),
            "margin_min": math.sqrt(2),
            "margin_max": math.sqrt(2),
            "coordinate": 4,
            "shape": 0,
            "rigid": 4,
        }
    )
    assert report["per_client"][0] == pytest.approx(
        {
            "classes": 2,
            "margin_mean": math.sqrt(8),
            "margin_min": math.sqrt(8),
            "margin_max": math.sqrt(8),
            "coordinate": 0,
            "shape": 0,
            "rigid": 0,
        }
    )
    assert report["per_client"][1] == {"classes": 0}
    assert report["effective_dimension"] == 2
    assert report["global_classes"] == 2
    assert report["global_margin_min"] == pytest.approx(math.sqrt(2))
    assert report["local_margin_mean"] == pytest.approx(1.5 * math.sqrt(2))
    assert (report["coordinate"], report["shape"], report["rigid"]) == pytest.approx((2, 0, 2))


def test_rows_are_matched_by_label():
    generator = torch.Generator().manual_seed(0)
    table, local = torch.randn(6, 8, generator=generator), torch.randn(3, 8, generator=generator)
    broadcast = {"labels": torch.tensor([0, 2, 3, 5, 7, 8]), "values": table}
    row = PrototypeDiagnostics()([Upload(0, {"labels": torch.tensor([1, 3, 7]), "values": local}, 1)], broadcast)
    parts = decompose(table[[2, 4]], local[[1, 2]])
    assert row["per_client"][0]["shape"] == parts.shape
    assert row["per_client"][0]["rigid"] == parts.rigid


@pytest.mark.parametrize(
    "uploads",
    [
        [],
        [upload(0, [], [])],
        [upload(0, [1], [[1.0, 2.0]])],
        [upload(0, [1], [[1.0, 2.0]]), upload(1, [1], [[1.0, 2.0]])],
        [upload(0, [0, 1], [[0.0, 0.0], [0.0, 0.0]])],
    ],
    ids=["nobody", "empty", "one class", "equal", "zeros"],
)
@pytest.mark.parametrize(
    "broadcast",
    [None, {"labels": torch.tensor([4]), "values": torch.ones(1, 2)}],
    ids=["no broadcast", "disjoint broadcast"],
)
def test_undefined_values_are_left_out(uploads, broadcast):
    report = PrototypeDiagnostics()(uploads, broadcast)
    assert all(math.isfinite(value) for value in numbers(report))
    assert report["effective_dimension"] == 0
    assert not {"coordinate", "shape", "rigid", "global_margin_mean"} & report.keys()
    assert report["per_client"].keys() == {item.client for item in uploads}
