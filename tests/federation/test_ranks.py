from types import SimpleNamespace

import pytest

from fedsaf.federation.ranks import Ranks, assign_owners


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 7])
def test_no_rank_carries_more_than_the_mean_and_one_client(num_ranks):
    costs = {client: float((7 * client) % 11 + 1) for client in range(20)}
    owners = assign_owners(costs, num_ranks)
    assert list(owners) == list(range(20))
    load = [sum(costs[c] for c, r in owners.items() if r == rank) for rank in range(num_ranks)]
    assert max(load) <= sum(costs.values()) / num_ranks + max(costs.values())


def test_one_heavy_client_has_a_rank_of_its_own():
    owners = assign_owners({0: 1.0, 1: 1.0, 2: 10.0, 3: 1.0}, 2)
    assert [client for client, rank in owners.items() if rank == owners[2]] == [2]


def test_more_ranks_than_clients():
    assert assign_owners({0: 1.0}, 3) == {0: 0}
    assert sorted(assign_owners({0: 0.0, 1: 0.0}, 2)) == [0, 1]


@pytest.fixture
def ranks():
    return Ranks(SimpleNamespace(global_rank=0, world_size=1), {0: 0, 1: 0, 2: 0})


def test_results_come_home_by_client_id(ranks):
    results, failures = ranks.map(lambda client: -client, [2, 0, 1])
    assert list(results.items()) == [(0, 0), (1, -1), (2, -2)]
    assert failures == []


def test_a_failure_names_its_client_and_leaves_the_others_alone(ranks):
    def task(client):
        if client == 1:
            raise OSError("no such image")
        return client

    results, (failure,) = ranks.map(task, [0, 1, 2])
    assert list(results) == [0, 2]
    assert (failure.client, failure.message) == (1, "OSError: no such image")
    assert "in task" in failure.trace


def test_a_request_to_leave_is_no_failure_of_a_client(ranks):
    def task(client):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ranks.map(task, [0])


def test_a_rank_works_for_its_own_clients_only():
    second = Ranks(SimpleNamespace(global_rank=1, world_size=2), {0: 0, 1: 1, 2: 1})
    assert second.own([2, 1, 0]) == [2, 1]
    assert not second.is_zero
