import pytest
import torch

from fedsaf.federation.store import client_store, drop_scratch
from tests.federation.harness import compare, run


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_what_is_put_in_comes_out(kind, tmp_path):
    store = client_store(kind, tmp_path)
    assert len(store) == 0
    store[3] = {"w": torch.tensor([1.0, 2.0]), "n": torch.tensor(7)}
    store[1] = {"w": torch.zeros(0)}
    store[3] = {"w": torch.tensor([5.0])}
    assert sorted(store) == [1, 3]
    assert store[3]["w"].tolist() == [5.0]
    del store[3]
    assert 3 not in store
    with pytest.raises(KeyError):
        store[3]


def test_an_unknown_kind_is_refused(tmp_path):
    with pytest.raises(ValueError, match="choose one of memory, disk"):
        client_store("shelf", tmp_path)


def test_states_on_disk_are_not_the_states_at_work(tmp_path):
    """A dict would hand out the very tensors; the disk hands out copies, so writing to one changes nothing."""
    store = client_store("disk", tmp_path)
    store[0] = {"w": torch.zeros(2)}
    store[0]["w"].add_(1)
    assert store[0]["w"].tolist() == [0.0, 0.0]


def test_scratch_vanishes_with_the_store_and_after_a_kill(tmp_path):
    store = client_store("disk", tmp_path)
    store[0] = {"w": torch.zeros(2)}
    del store
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "clients-killed").mkdir()
    (tmp_path / "clients-killed" / "000000.pt").write_bytes(b"left")
    (tmp_path / "checkpoint").mkdir()
    drop_scratch(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_where_states_wait_changes_nothing(straight, words, tmp_path):
    compare(straight, run([*words, "client_store=disk"], tmp_path / "run"))
    assert not list((tmp_path / "run").glob("clients-*"))
