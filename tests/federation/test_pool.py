import torch

from fedsaf.federation.client import FederatedClient
from fedsaf.federation.pool import ClientPool
from fedsaf.federation.store import open_store
from tests.federation.harness import TINY, make_job

CPU = torch.device("cpu")


def make_pool(tmp_path, *words):
    job = make_job([*TINY, "model_group.architectures=[simple_cnn,resnet4]", *words], tmp_path)
    return ClientPool(job.factory, open_store("memory", None), CPU)


def copy_of(state):
    return {name: tensor.clone() for name, tensor in state.items()}


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_a_round_counts_only_once_it_is_committed(tmp_path):
    pool = make_pool(tmp_path)
    client = pool.borrow(0, for_training=True)
    before = copy_of(pool.store[0])
    with torch.no_grad():
        for parameter in client.parameters():
            parameter.add_(1)
    client.memory["note"] = torch.ones(3)
    assert equal(pool.store[0], before)
    pool.keep(0, client)
    assert equal(pool.store[0], before)
    pool.abandon()
    assert pool.commit(except_for=[]) == []
    assert equal(pool.store[0], before)
    pool.keep(0, client)
    assert pool.commit(except_for=[]) == [0]
    assert "memory.note" in pool.store[0]
    assert not equal(pool.store[0], before)


def test_a_client_that_failed_is_not_committed(tmp_path):
    pool = make_pool(tmp_path)
    for client in (0, 1):
        module = pool.borrow(client, for_training=True)
        module.memory["note"] = torch.ones(1)
        pool.keep(client, module)
    assert pool.commit(except_for=[0]) == [1]
    assert "memory.note" not in pool.store[0]


def test_nothing_of_the_client_before_stays_on_the_workbench(tmp_path):
    pool = make_pool(tmp_path)
    first = pool.borrow(0, for_training=True)
    first.memory["note"], first.scratch["x"], first.received["y"] = torch.ones(1), 1, 2
    second = pool.borrow(2, for_training=True)
    assert second is first  # one architecture, one workbench
    assert (second.memory, second.scratch, second.received) == ({}, {}, {})


def test_first_weights_depend_on_seed_and_client_alone(tmp_path):
    one, other = make_pool(tmp_path), make_pool(tmp_path)
    for client in (3, 1, 0, 2):
        one.borrow(client, for_training=False)
    torch.manual_seed(123)
    for client in (0, 1, 2, 3):
        other.borrow(client, for_training=False)
        assert equal(one.store[client], other.store[client])
    assert not equal(one.store[0], one.store[2])
    assert not equal(one.store[0], make_pool(tmp_path, "seed=1").factory.build(0).export_state())


def test_clients_of_one_architecture_start_alike_where_the_protocol_says_so(tmp_path):
    pool = make_pool(tmp_path, "protocol.initialisation=per_architecture")
    for client in range(4):
        pool.borrow(client, for_training=False)
    assert equal(pool.store[0], pool.store[2])
    assert equal(pool.store[1], pool.store[3])
    public = [make_pool(tmp_path, "protocol.initialisation=public", f"seed={seed}").factory for seed in (0, 1)]
    assert equal(*(factory.build(0).export_state() for factory in public))


def test_many_clients_need_one_workbench_per_architecture(tmp_path, monkeypatch):
    """100 clients, two architectures: two modules work, and none is alive besides while states wait as tensors."""
    alive, peak = set(), 0
    build = FederatedClient.__init__

    def counted(self, *args, **kwargs):
        build(self, *args, **kwargs)
        alive.add(id(self))

    monkeypatch.setattr(FederatedClient, "__init__", counted)
    monkeypatch.setattr(FederatedClient, "__del__", lambda self: alive.discard(id(self)), raising=False)
    pool = make_pool(tmp_path, "num_clients=100", "dataset.num_samples=1600")
    for turn in range(2):
        for client in range(100):
            module = pool.borrow(client, for_training=turn == 0)
            peak = max(peak, len(alive))
            pool.keep(client, module)
            del module
        pool.commit(except_for=[])
    assert len(pool.store) == 100
    # While a client is built for the first time, its module exists beside the two workbenches.
    assert peak <= 3
    assert all(type(tensor) is torch.Tensor for tensor in pool.store[99].values())
