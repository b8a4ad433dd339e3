"""Values worked out independently of this code, in float64."""

import pytest
import torch

from fedsaf.losses.contrastive import batch_contrastive, contrastive, uniformity
from fedsaf.losses.coordinate import cosine, l2, mse
from fedsaf.losses.decomposition import decompose
from fedsaf.losses.numerics import unit_rows
from fedsaf.losses.structural import NORM_FLOOR, centre, gcsa, rcsa, squared_distances

ROW_MATCHED = {
    "mse mean": (lambda P, Q: mse(P, Q, "mean"), 1.16666667),
    "mse rowsum": (lambda P, Q: mse(P, Q, "rowsum"), 3.5),
    "l2": (l2, 1.64412281),
    "cosine": (cosine, 0.32226906),
    "gcsa": (gcsa, 0.61816108),
    "rcsa": (rcsa, 0.17158353),
}

AGAINST_TABLE = {
    "tau 1": (lambda *a: contrastive(*a, 1.0), 1.24183391),
    "tau 0.5": (lambda *a: contrastive(*a, 0.5), 1.21097139),
    "tau 0.07": (lambda *a: contrastive(*a, 0.07), 3.08211208),
    "positive twice": (lambda *a: contrastive(*a, 1.0, double_positive=True), 1.50333364),
    "batch axis": (lambda *a: batch_contrastive(*a, 1.0), 1.24856104),
    # The contrastive loss less its first part, -mean cos / tau = 0.32226906 - 1 at tau = 1.
    "uniformity": (lambda *a: uniformity(*a, 1.0), 1.24183391 + 1 - 0.32226906),
}


@pytest.mark.parametrize("name", ROW_MATCHED)
def test_row_matched(golden, name):
    P, Q, _, _ = golden
    loss, expected = ROW_MATCHED[name]
    assert loss(P, Q).item() == pytest.approx(expected, abs=1e-8)
    assert loss(P.float(), Q.float()).item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", AGAINST_TABLE)
def test_against_table(golden, name):
    P, _, labels, table = golden
    loss, expected = AGAINST_TABLE[name]
    assert loss(P, labels, table).item() == pytest.approx(expected, abs=2e-8)


def test_dissimilarities(golden):
    P, Q, _, _ = golden
    above = torch.triu_indices(4, 4, offset=1).unbind()
    ours, theirs = (squared_distances(centre(unit_rows(X, NORM_FLOOR)))[above].tolist() for X in (P, Q))
    assert ours == pytest.approx([2, 2, 0.84529946, 2, 0.84529946, 0.84529946], abs=1e-8)
    assert theirs == pytest.approx([2, 0.21114562, 1.36754447, 2, 0.58578644, 2], abs=1e-8)


def test_decomposition(golden):
    P, Q, _, _ = golden
    assert decompose(P, Q) == pytest.approx((2.57815246, 1.22037961, 1.35777284), abs=2e-8)


def test_gcsa_of_worked_triangle():
    # Right angle against a straight line 0, 1, 2. Centred, times 3: (-1,-1), (2,-1), (-1,2) and -3, 0, 3. So K is
    # [[2,-1,-1],[-1,5,-4],[-1,-4,5]]/9 with squared norm (4+25+25+2+2+32)/81 = 90/81; L = [[1,0,-1],[0,0,0],[-1,0,1]]
    # with squared norm 4; <K, L> = (2+1+1+5)/9 = 1; cosine = 1 / (2 sqrt(90)/9) = 9 / (2 sqrt 90).
    P = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    Q = torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]], dtype=torch.float64)
    assert gcsa(P, Q).item() == pytest.approx(1 - 9 / (2 * 90**0.5), abs=1e-12)
