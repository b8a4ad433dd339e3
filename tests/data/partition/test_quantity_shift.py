import numpy as np
import pytest

from fedsaf.data.partition.quantity_shift import IID, QuantitySkew
from tests.data.partition.rules import assert_disjoint_and_complete, run, shuffled


def skew(beta, generator="numpy", **options):
    given = {"min_samples": 10, "max_tries": 1000, "repair": True, "seed": 1, **options}
    return QuantitySkew(beta=beta, generator=generator, **given)


def sizes_of(outcome):
    return np.array([len(own) for own in outcome.indices])


def test_iid_sizes_differ_by_at_most_one():
    assert set(sizes_of(run(IID(seed=1, generator="numpy"), shuffled(1003, 10), 20))) == {50, 51}


def test_sizes_are_those_of_one_dirichlet_draw():
    labels = shuffled(1000, 10)
    outcome = run(skew(2.0, "public", min_samples=1), labels, 10)
    legacy = np.random.RandomState(1)
    order, q = legacy.permutation(1000), legacy.dirichlet([2.0] * 10)
    cuts = np.floor(np.cumsum(q) * 1000).astype(int)[:-1]
    assert outcome.tries == 1
    assert all(np.array_equal(a, b) for a, b in zip(outcome.indices, np.split(order, cuts), strict=True))


def test_labels_are_alike_and_sizes_are_not():
    labels = shuffled(50_000, 10)
    outcome = run(skew(0.5, min_samples=100), labels, 10)
    assert sizes_of(outcome).max() > 5 * sizes_of(outcome).min()
    for own in outcome.indices:
        p = np.bincount(labels[own], minlength=10) / len(own)
        assert np.abs(p - 0.1).max() < 5 * np.sqrt(0.09 / len(own))  # five standard deviations of a share


def test_larger_beta_gives_more_equal_sizes():
    spread = [sizes_of(run(skew(beta), shuffled(20_000, 10), 20)).std() for beta in (0.1, 1.0, 10.0, 1000.0)]
    assert all(a > 2 * b for a, b in zip(spread, spread[1:], strict=False))


@pytest.mark.parametrize("generator", ["numpy", "public"])
@pytest.mark.parametrize("beta", [0.01, 1e-5])
def test_small_clients_are_raised_to_the_minimum_and_no_further(beta, generator):
    outcome = run(skew(beta, generator, max_tries=30), shuffled(1000, 10), 20)
    assert_disjoint_and_complete(outcome.indices, 1000)
    sizes = sizes_of(outcome)
    assert outcome.tries == 30
    assert sizes.min() == 10
    assert sizes.max() > 300  # still a skew
    assert 0 < outcome.moved <= 19 * 10


def test_the_minimum_is_at_most_half_the_mean():
    outcome = run(skew(0.05, max_tries=3, min_samples=40), shuffled(1000, 10), 100)
    assert sizes_of(outcome).min() == 5


def test_enough_tries_need_no_repair():
    outcome = run(skew(0.5), shuffled(20_000, 10), 20)
    assert outcome.tries > 1
    assert outcome.moved == 0
    assert sizes_of(outcome).min() >= 10


def test_without_repair_the_error_has_the_numbers():
    with pytest.raises(ValueError, match=r"no Dir\(0\.01\) draw in 5 gave each of 20 clients 10 of the 1000 .*"
                       r"had \d+\. Raise partition\.beta"):  # fmt: skip
        run(skew(0.01, repair=False, max_tries=5), shuffled(1000, 10), 20)


@pytest.mark.parametrize("beta", [0, -1.0, float("nan"), float("inf"), "0.5", True])
def test_beta_must_be_positive(beta):
    with pytest.raises(ValueError, match=r"partition\.beta"):
        run(skew(beta), shuffled(1000, 10), 5)


def test_two_samples_per_client_are_the_least():
    with pytest.raises(ValueError, match="num_clients=6 is too many for 10 samples at 2 or more per client"):
        run(skew(1.0), shuffled(10, 2), 6)
