import numpy as np
import pytest

from fedsaf.data.partition import label_shift
from fedsaf.data.partition.label_shift import Dirichlet, Pathological
from fedsaf.data.partition.splits import random_split
from tests.data.partition.rules import assert_disjoint_and_complete, labels_of, rule_of, run, shuffled


def dirichlet(alpha, generator="numpy", seed=1, **options):
    given = {"min_samples": 40, "max_tries": 1000, "repair": True, **options}
    return Dirichlet(alpha=alpha, seed=seed, generator=generator, **given)


def pathological(q, balanced=False, generator="numpy", min_samples=40):
    return Pathological(classes_per_client=q, balanced=balanced, min_samples=min_samples, seed=1, generator=generator)


# Published configurations of the public generator, seed 1: tries, client sizes (or their extremes), and the class
# counts summed over clients: in the whole client / in training / seen when an incomplete batch of 100 / 10 is dropped.
CIFAR10, CIFAR100, TINY = [6000] * 10, [600] * 100, [550] * 200
GOLDEN = [
    (CIFAR10, 20, 0.1, 1, "1621 1814 1211 2080 5128 4264 1440 2622 2974 3236 1164 1964 5994 1527 3100 4325 4252 3175 "
     "5449 2660", (102, 101, 101, 101)),
    (CIFAR10, 20, 0.5, 1, "2805 3449 3794 4096 2457 4058 4592 1882 1851 3308 4065 2952 2766 3053 2783 3200 2747 2667 "
     "1430 2045", (176, 175, 175, 175)),
    (CIFAR10, 20, 1.0, 1, "3730 3320 2114 3302 3329 3129 3114 1636 3019 3000 3074 2273 2608 3276 3510 2075 2863 3755 "
     "3464 3409", (189, 189, 189, 189)),
    (CIFAR100, 20, 0.1, 1, "3020 3053 2753 3029 2640 2877 3120 3047 2807 3211 2761 3359 3290 2971 3301 3132 3345 2642 "
     "3035 2607", (921, 869, 867, 868)),
    (CIFAR100, 20, 0.5, 1, "2600 3093 3005 3119 3093 3003 3000 3001 3002 3083 2838 3044 3010 2706 2993 3181 3008 3000 "
     "3096 3125", (1702, 1643, 1638, 1642)),
    (CIFAR100, 20, 1.0, 1, "3036 3002 2933 2783 3052 3031 2987 3095 3053 3050 2789 2968 3034 3141 3004 3004 3110 2885 "
     "3028 3015", (1881, 1860, 1857, 1860)),
    (CIFAR100, 50, 0.1, 1, (660, 1469), (1920, 1806, 1785, 1802)),
    (CIFAR100, 100, 0.1, 1, (275, 817), (3271, 3040, 2930, 3031)),
    (CIFAR100, 200, 0.1, 1, (116, 476), (5775, 5307, 4884, 5275)),
    ([500] * 200, 20, 0.1, 1, (3261, 5465), (1776, 1690, 1688, 1690)),
    (TINY, 20, 0.1, 1, (4805, 5878), (1853, 1759, 1757, 1759)),
    ([31900] * 4, 20, 0.1, 12, (127, 26692), (45, 44, 40, 44)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("class_sizes", "num_clients", "alpha", "tries", "sizes", "seen"),
    GOLDEN,
    ids=[f"{len(g[0])}-classes-{g[1]}-clients-{g[2]}" for g in GOLDEN],
)
def test_public_generator_gives_the_published_counts(class_sizes, num_clients, alpha, tries, sizes, seen):
    labels = labels_of(*class_sizes)
    rule = rule_of("dirichlet_public", alpha=alpha)
    rng = rule.rng()
    outcome = rule(labels, None, num_clients, rng)
    assert (outcome.tries, outcome.moved) == (tries, 0)
    lengths = [len(own) for own in outcome.indices]
    if isinstance(sizes, str):
        assert lengths == list(map(int, sizes.split()))
    else:
        assert (min(lengths), max(lengths)) == sizes
    trains = [labels[own[random_split(labels[own], 0.75, rng)[0]]] for own in outcome.indices]
    counted = [len(np.unique(labels[own])) for own in outcome.indices]
    kept = [sum(len(np.unique(t[: len(t) // b * b])) for t in trains) for b in (1, 100, 10)]
    assert (sum(counted), *kept) == seen
    if num_clients == 200:
        assert min(map(len, trains)) == 87


def test_public_generator_class_counts_of_two_clients():
    labels = labels_of(*CIFAR10)
    first, second = (
        np.bincount(labels[own], minlength=10) for own in run(rule_of("dirichlet_public"), labels, 20).indices[:2]
    )
    assert {k: v for k, v in enumerate(first.tolist()) if v} == {1: 9, 3: 668, 4: 476, 5: 287, 6: 5, 7: 167, 9: 9}
    assert {k: v for k, v in enumerate(second.tolist()) if v} == {0: 7, 1: 1, 2: 62, 4: 43, 7: 177, 8: 1524}


@pytest.mark.parametrize("generator", ["numpy", "public"])
@pytest.mark.parametrize(("n", "num_clients", "alpha"), [(2000, 200, 0.1), (500, 20, 0.02), (300, 20, 1e-4)])
def test_hard_draws_end_after_max_tries_and_are_repaired(n, num_clients, alpha, generator):
    labels = shuffled(n, 10)
    outcome = run(dirichlet(alpha, generator, max_tries=100), labels, num_clients)
    assert_disjoint_and_complete(outcome.indices, n)
    assert min(map(len, outcome.indices)) >= n // num_clients // 2
    assert outcome.tries == 100
    again = run(dirichlet(alpha, generator, max_tries=100), labels, num_clients)
    assert all(np.array_equal(a, b) for a, b in zip(outcome.indices, again.indices, strict=True))


def test_an_impossible_draw_is_repaired_only_if_there_is_no_other(monkeypatch):
    """A class that met full clients only was spread evenly: more even than alpha asks, hence the last resort."""
    labels = shuffled(300, 10)
    samples = np.arange(300)
    lopsided = [(samples, np.array([20, 40, 60]))], np.array([20, 20, 20, 240]), True
    even = [(samples, np.array([29, 100, 200]))], np.array([29, 71, 100, 100]), False
    rule = dirichlet(0.1, max_tries=3)
    for draws, sizes in (([even, lopsided, even], [37, 37, 37, 189]), ([even] * 3, [37, 71, 92, 100])):
        queue = iter(draws)
        monkeypatch.setattr(Dirichlet, "_draw", lambda *_, queue=queue: next(queue))
        outcome = run(rule, labels, 4)
        assert sorted(map(len, outcome.indices)) == sizes


def test_draws_are_bounded_by_the_work_they_are(monkeypatch):
    monkeypatch.setattr(label_shift, "MAX_SHARES", 40_000)
    labels = shuffled(2000, 10)
    assert run(dirichlet(0.01), labels, 200).tries == 40_000 // (200 * 10)
    assert run(dirichlet(0.01, max_tries=7), labels, 200).tries == 7
    with pytest.raises(ValueError, match=r"draw in 20 gave each of 200 clients"):
        run(dirichlet(0.01, repair=False), labels, 200)
    monkeypatch.setattr(label_shift, "MAX_SHARES", 10)
    assert run(dirichlet(0.01), labels, 200).tries == 1


def test_a_thousand_clients_get_their_minimum():
    labels = shuffled(50_000, 10)
    outcome = run(dirichlet(0.01, max_tries=20), labels, 1000)
    assert_disjoint_and_complete(outcome.indices, 50_000)
    assert min(map(len, outcome.indices)) == 25


def test_without_repair_the_error_has_the_numbers():
    with pytest.raises(ValueError, match=r" [1-9]\d* draws met full clients only"):
        run(dirichlet(1e-4, "public", repair=False, max_tries=30), shuffled(300, 10), 20)
    with pytest.raises(ValueError, match=r"Dir\(0\.1\) draw in 5 .* 200 clients 5 of the 2000 .* best .* had \d"):
        run(dirichlet(0.1, repair=False, max_tries=5), shuffled(2000, 10), 200)


def test_repair_moves_no_more_than_needed():
    labels = shuffled(2000, 10)
    rule = dirichlet(0.1, max_tries=1)
    outcome = run(rule, labels, 200)
    raw = rule._draw([np.flatnonzero(labels == c) for c in range(10)], 200, rule.rng())[1]
    assert outcome.moved == np.clip(5 - raw, 0, None).sum()


def test_larger_alpha_gives_flatter_histograms():
    labels = shuffled(20000, 10)
    entropies = []
    for alpha in (0.1, 1.0, 100.0):
        p = np.stack(
            [np.bincount(labels[own], minlength=10) / len(own) for own in run(dirichlet(alpha), labels, 20).indices]
        )
        entropies.append(-(p * np.log(np.where(p > 0, p, 1))).sum(1).mean())
    assert entropies[0] + 0.3 < entropies[1] < entropies[2] - 0.2
    assert entropies[2] > 0.98 * np.log(10)


@pytest.mark.parametrize("alpha", [0, -1.0, float("nan"), float("inf")])
def test_alpha_must_be_positive(alpha):
    with pytest.raises(ValueError, match="alpha"):
        run(dirichlet(alpha), shuffled(1000, 10), 5)


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize(("classes", "num_clients", "q"), [(10, 20, 2), (10, 20, 1), (10, 5, 2), (100, 20, 10)])
def test_pathological_clients_have_q_classes_in_fixed_groups(classes, num_clients, q, balanced):
    labels = shuffled(6000, classes)
    rule = pathological(q, balanced)
    indices = run(rule, labels, num_clients).indices
    held = np.stack([np.bincount(labels[own], minlength=classes) > 0 for own in indices])
    assert (held.sum(1) == q).all()
    assert (held.sum(0) == num_clients * q / classes).all()
    shares = np.bincount(labels[indices[0]], minlength=classes)
    equal = 6000 / classes / (num_clients * q / classes)
    assert (shares[held[0]] == equal).all() == (balanced or num_clients * q == classes)


def test_pathological_may_leave_the_last_classes_to_nobody():
    labels = labels_of(*[80] * 102)
    outcome = run(pathological(10), labels, 20)
    indices = outcome.indices
    assert set(labels[np.concatenate(indices)]) == set(range(100))
    assert outcome.left_out == {"classes, as no client may take another": 2}


def test_pathological_shares_follow_the_public_rule():
    labels = labels_of(*CIFAR10)
    indices = run(pathological(2, generator="public"), labels, 20).indices
    legacy = np.random.RandomState(1)
    shares = legacy.randint(150, 1500, 3)  # class 0: 4 clients, equal share 1500, a tenth of it 150
    assert [np.sum(labels[own] == 0) for own in indices[:4]] == [*shares, 6000 - shares.sum()]
    assert indices[0][: shares[0]].tolist() == list(range(shares[0]))


def test_pathological_limits():
    labels = shuffled(100, 10)
    for q in (0, 11, 1.5):
        with pytest.raises(ValueError, match=f"classes_per_client={q} must be"):
            run(pathological(q, True), labels, 5)
    with pytest.raises(ValueError, match="class 0 has 10 samples for 30 clients"):
        run(pathological(10, True), labels, 30)
