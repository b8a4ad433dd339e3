import numpy as np
import pytest

from fedsaf.data.partition.group_shift import ByDomain, ByUser
from tests.data.partition.rules import run


def by_domain(k=1, seed=1, generator="numpy"):
    return ByDomain(clients_per_domain=k, seed=seed, generator=generator)


def by_user(min_samples=1, most=None, seed=1, generator="numpy"):
    return ByUser(min_samples=min_samples, max_samples_per_client=most, seed=seed, generator=generator)


def zeros(groups):
    return np.zeros(len(groups), int)


def users_of(*sizes):
    """Interleaved users with these numbers of samples."""
    return np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))


def test_one_client_per_domain_in_the_order_of_the_domains():
    groups = np.array([5, 0, 5, 2])
    outcome = run(by_domain(), zeros(groups), 3, groups)
    assert [own.tolist() for own in outcome.indices] == [[1], [3], [0, 2]]
    assert outcome.groups == [0, 2, 5]


def test_one_client_per_domain_draws_nothing():
    groups = users_of(5, 7)
    rule = by_domain(generator="public")
    rng = rule.rng()
    rule(zeros(groups), groups, 2, rng)
    assert rng.randint(2**31) == rule.rng().randint(2**31)


@pytest.mark.parametrize("k", [2, 3])
def test_domains_are_split_at_random_into_equal_shares(k):
    groups = np.repeat([0, 1], [100, 61])
    outcome = run(by_domain(k), zeros(groups), 2 * k, groups)
    assert outcome.groups == [0] * k + [1] * k
    for domain, size in ((0, 100), (1, 61)):
        own = [o for o, g in zip(outcome.indices, outcome.groups, strict=True) if g == domain]
        assert {len(o) for o in own} <= {size // k, size // k + 1}
        assert np.array_equal(np.sort(np.concatenate(own)), np.flatnonzero(groups == domain))
        assert not np.array_equal(np.concatenate(own), np.flatnonzero(groups == domain))
    other = run(by_domain(k, seed=2), zeros(groups), 2 * k, groups)
    assert not np.array_equal(outcome.indices[0], other.indices[0])


@pytest.mark.parametrize(
    ("num_clients", "k", "message"),
    [
        (6, 1, r"num_clients=6, but 4 domains x partition.clients_per_domain=1 make 4 clients; set num_clients=4$"),
        (2, 1, r"num_clients=2, but 4 domains x .*; set num_clients=4$"),
        (8, 1, r"set num_clients=4, or partition.clients_per_domain=2"),
        (4, 3, r"num_clients=4, but .*=3 make 12 clients; set num_clients=12, or partition.clients_per_domain=1"),
        (80, 20, r"domain 3 has 11 samples for partition.clients_per_domain=20 clients; .* is 11"),
        (4, 0, r"partition.clients_per_domain=0 must be a whole number >= 1"),
        (4, 1.5, r"partition.clients_per_domain=1.5"),
    ],
)
def test_domains_and_clients_must_match(num_clients, k, message):
    groups = np.repeat([0, 1, 2, 3], [40, 30, 20, 11])
    with pytest.raises(ValueError, match=message):
        run(by_domain(k), zeros(groups), num_clients, groups)


@pytest.mark.parametrize("k", [1, 2])
def test_a_single_domain_is_refused(k):
    with pytest.raises(ValueError, match="needs two domains or more, but all 8 samples are of one; partition=iid"):
        run(by_domain(k), np.zeros(8, int), k, np.full(8, 3))


@pytest.mark.parametrize(("rule", "kind"), [(by_domain(), "domains"), (by_user(), "users")])
def test_data_without_groups_are_refused(rule, kind):
    with pytest.raises(ValueError, match=f"needs a data set with {kind}; .*dataset.group_column"):
        run(rule, np.zeros(4, int), 2)


def test_users_stand_in_ascending_order_of_size_and_keep_their_order_of_samples():
    groups = users_of(30, 10, 20, 10, 5)
    outcome = run(by_user(), zeros(groups), 5, groups)
    assert outcome.groups == [4, 1, 3, 2, 0]
    for own, user in zip(outcome.indices, outcome.groups, strict=True):
        assert np.array_equal(own, np.flatnonzero(groups == user))
    assert not any(outcome.left_out.values())


def test_small_users_are_left_out_and_counted():
    groups = users_of(30, 10, 20, 9, 5)
    outcome = run(by_user(10), zeros(groups), 2, groups)
    assert set(outcome.groups) < {0, 1, 2}
    assert outcome.left_out["users with fewer than 10 samples"] == 2
    assert outcome.left_out["users not drawn"] == 1


@pytest.mark.parametrize("generator", ["numpy", "public"])
def test_users_are_drawn_by_the_seed_and_nested_in_the_number_of_clients(generator):
    groups = users_of(*range(1, 41))
    drawn = {n: set(run(by_user(5, generator=generator), zeros(groups), n, groups).groups) for n in (3, 10, 36)}
    assert drawn[3] < drawn[10] < drawn[36] == set(range(4, 40))
    assert drawn[10] != set(run(by_user(5, seed=2, generator=generator), zeros(groups), 10, groups).groups)
    assert drawn[10] not in (set(range(4, 14)), set(range(30, 40)))


def test_a_minimum_does_not_change_which_large_users_are_drawn():
    groups = users_of(*[2] * 20, *[50] * 20)
    few = run(by_user(50), zeros(groups), 5, groups).groups
    many = run(by_user(1), zeros(groups), 30, groups).groups
    assert set(few) < set(many)


def test_the_first_samples_of_a_user_are_taken_and_order_follows_what_is_left():
    groups = users_of(30, 50, 8, 20)
    outcome = run(by_user(5, most=20), zeros(groups), 4, groups)
    assert outcome.groups == [2, 0, 1, 3]  # 8, then three of 20 by user id
    assert [len(own) for own in outcome.indices] == [8, 20, 20, 20]
    assert np.array_equal(outcome.indices[2], np.flatnonzero(groups == 1)[:20])
    assert outcome.left_out["samples beyond the first 20 of a user"] == 10 + 30


@pytest.mark.parametrize(
    ("num_clients", "rule", "message"),
    [
        (4, by_user(10), r"num_clients=4, but only 3 of 5 users have partition.min_samples=10 samples or more; "
                         r"lower num_clients to 3 or partition.min_samples to 9$"),
        (6, by_user(10), r"only 3 of 5 users .*; lower num_clients to 3$"),
        (2, by_user(99), r"only 0 of 5 users .*; lower partition.min_samples to 20$"),
        (6, by_user(99), r"only 0 of 5 users .*; lower partition.min_samples to 30 and num_clients to 1$"),
        (1, by_user(0), r"partition.min_samples=0 must be a whole number >= 1"),
        (1, by_user(1, most=0), r"partition.max_samples_per_client=0 must be a whole number >= 1"),
        (1, by_user(9, most=8), r"max_samples_per_client=8 is below partition.min_samples=9; raise the first or lower"),
    ],
)  # fmt: skip
def test_users_that_cannot_be_served(num_clients, rule, message):
    groups = users_of(30, 10, 20, 9, 5)
    with pytest.raises(ValueError, match=message):
        run(rule, zeros(groups), num_clients, groups)
