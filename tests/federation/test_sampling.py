from collections import Counter

import pytest

from fedsaf.federation.sampling import cohort


@pytest.mark.parametrize(
    ("num_clients", "ratio", "size"),
    [(10, 1.0, 10), (10, 0.3, 3), (100, 0.29, 29), (10, 0.01, 1), (3, 0.5, 1), (7, 0.999, 6), (1, 1.0, 1)],
)
def test_size_is_the_floor_but_at_least_one(num_clients, ratio, size):
    chosen = cohort(0, 5, num_clients, ratio)
    assert len(chosen) == len(set(chosen)) == size
    assert chosen == sorted(chosen)
    assert set(chosen) <= set(range(num_clients))


def test_depends_on_seed_and_round_alone():
    assert cohort(0, 3, 50, 0.2) == cohort(0, 3, 50, 0.2)
    assert len({tuple(cohort(seed, round, 50, 0.2)) for seed in range(4) for round in range(4)}) == 16


def test_everyone_is_drawn_about_equally_often():
    """400 draws of 2 out of 10: 80 each, standard deviation 8."""
    counts = Counter(client for round in range(400) for client in cohort(1, round, 10, 0.2))
    assert sorted(counts) == list(range(10))
    assert all(abs(count - 80) < 32 for count in counts.values())
