import math

import pytest
import torch

from fedsaf.core.types import ServerContext
from fedsaf.methods.alignfed import Hypersphere
from fedsaf.prototypes.sphere import BUILDERS, energy, etf, optimise, orthogonal, random


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def cosines(vectors):
    C = len(vectors)
    return (vectors @ vectors.T)[~torch.eye(C, dtype=torch.bool)]


@pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)
def test_unit_rows_from_the_seed_alone(build):
    vectors = build(6, 8, generator())
    assert vectors.shape == (6, 8)
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(6, dtype=torch.float64))
    torch.manual_seed(99)
    assert torch.equal(build(6, 8, generator()), vectors)
    assert (build(6, 8, generator(1)) - vectors).abs().max() > 1e-3


@pytest.mark.parametrize(("C", "d"), [(2, 2), (2, 64), (10, 10), (10, 64), (100, 512)])
def test_etf_cosines(C, d):
    vectors = etf(C, d, generator())
    assert (cosines(vectors) + 1 / (C - 1)).abs().max() < 1e-12
    assert vectors.sum(dim=0).abs().max() < 1e-12


def test_two_classes_are_opposite():
    a, b = etf(2, 16, generator())
    torch.testing.assert_close(a, -b)


def test_orthogonal_cosines():
    assert cosines(orthogonal(8, 8, generator())).abs().max() < 1e-12


def test_orthogonal_has_its_signs_fixed():
    # With a positive diagonal of R, each row has a positive product with the Gaussian column that it starts from.
    gaussian = torch.randn(8, 5, dtype=torch.float64, generator=generator())
    assert (orthogonal(5, 8, generator()) @ gaussian).diagonal().min() > 0


@pytest.mark.parametrize(("C", "d"), [(2, 3), (4, 3), (10, 9), (10, 64), (60, 64)])
def test_optimise_reaches_the_simplex(C, d):
    vectors = optimise(C, d, generator())
    assert (cosines(vectors) + 1 / (C - 1)).abs().max() < 1e-3
    assert energy(vectors) == pytest.approx(math.log(math.e**2 + (C - 1) * math.exp(-2 / (C - 1))), abs=1e-8)


def test_energy_of_ten_classes():
    assert energy(etf(10, 16, generator())) == pytest.approx(2.68072647, abs=1e-8)
    assert energy(optimise(10, 16, generator())) == pytest.approx(2.68072647, abs=1e-8)
    assert energy(random(10, 16, generator())) > 2.69


def test_optimise_gradient_is_that_of_the_summed_energy(monkeypatch):
    monkeypatch.setattr("fedsaf.prototypes.sphere.MAX_STEPS", 1)
    monkeypatch.setattr("fedsaf.prototypes.sphere.CHECK_EVERY", 1)
    start = 2 * torch.rand(7, 3, dtype=torch.float64, generator=generator()) - 1
    start = (start / start.norm(dim=1, keepdim=True)).requires_grad_()
    (gradient,) = torch.autograd.grad((start @ start.T / 0.5).exp().sum(dim=1).log().sum(), start)
    expected = start - 0.1 * gradient
    torch.testing.assert_close(optimise(7, 3, generator()), (expected / expected.norm(dim=1, keepdim=True)).detach())


def test_optimise_spreads_more_classes_than_dimensions():
    vectors = optimise(12, 3, generator())
    assert energy(vectors) < energy(random(12, 3, generator())) - 0.05
    assert cosines(vectors).max() < 0.75  # the icosahedron, which twelve points can reach, has 0.447


def test_too_many_or_too_few_classes():
    for build in (etf, orthogonal):
        with pytest.raises(ValueError, match="feature_dim = 3, got 4; use 'optimise'"):
            build(4, 3, generator())
    with pytest.raises(ValueError, match="num_classes >= 2"):
        etf(1, 3, generator())


def test_constructor_is_fixed_and_sent_once():
    sphere = Hypersphere("auto", radius=3.0)
    sphere.prepare(ServerContext(5, 8, seed=1))
    first = sphere.broadcast()
    assert first["labels"].tolist() == [0, 1, 2, 3, 4]
    torch.testing.assert_close(first["values"].norm(dim=1), torch.full((5,), 3.0))
    assert sphere.update([], round=0) == {"num_prototypes": 5.0}
    assert torch.equal(sphere.broadcast()["values"], first["values"])
    assert torch.equal(sphere.setup_message()["values"], first["values"])
    assert (sphere.needs_counts, sphere.needs_uploads) == (False, False)


def test_auto_takes_what_fits():
    sphere = Hypersphere("auto", radius=1.0)
    sphere.prepare(ServerContext(4, 4, seed=0))
    assert cosines(sphere.broadcast()["values"]).numpy() == pytest.approx(-1 / 3, abs=1e-6)
    sphere.prepare(ServerContext(4, 3, seed=0))
    assert cosines(sphere.broadcast()["values"]).numpy() == pytest.approx(-1 / 3, abs=1e-3)


def test_seed_turns_the_sphere():
    tables = []
    for seed in (0, 1):
        sphere = Hypersphere("etf", 1.0)
        sphere.prepare(ServerContext(4, 8, seed))
        tables.append(sphere.broadcast()["values"])
    assert (tables[0] - tables[1]).abs().max() > 0.1


def test_unknown_choices_are_named():
    with pytest.raises(ValueError, match="builder is 'simplex'; choose auto, etf"):
        Hypersphere("simplex", 1.0)
    with pytest.raises(ValueError, match="radius"):
        Hypersphere("etf", 0.0)
