import pytest
import torch

from fedsaf.federation.store import drop_scratch, open_store
from tests.federation.harness import TINY, compare, make_job, run


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_what_is_put_in_comes_out(kind, tmp_path):
    store = open_store(kind, tmp_path)
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
        open_store("shelf", tmp_path)


def test_states_on_disk_are_not_the_states_at_work(tmp_path):
    """A dict would hand out the very tensors; the disk hands out copies, so writing to one changes nothing."""
    store = open_store("disk", tmp_path)
    store[0] = {"w": torch.zeros(2)}
    store[0]["w"].add_(1)
    assert store[0]["w"].tolist() == [0.0, 0.0]


def test_scratch_vanishes_with_the_store_and_after_a_kill(tmp_path):
    store = open_store("disk", tmp_path)
    store[0] = {"w": torch.zeros(2)}
    del store
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "clients-killed").mkdir()
    (tmp_path / "clients-killed" / "000000.pt").write_bytes(b"left")
    (tmp_path / "checkpoint").mkdir()
    drop_scratch(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_where_states_wait_changes_nothing(straight, words, tmp_path):
    """Records, final messages and every tensor of the checkpoint, three rounds of half the clients."""
    compare(straight, run([*words, "store=disk"], tmp_path / "run"))
    assert not list((tmp_path / "run").glob("clients-*"))


def test_a_run_may_change_its_store_when_it_goes_on(straight, words, tmp_path):
    """Where states wait is no part of what a run is: its hash stays, and so does its checkpoint."""
    assert make_job([*words, "store=disk"], tmp_path / "a").identity == make_job(words, tmp_path / "b").identity
    run([*words, "store=disk"], tmp_path / "run", stop_within=2)
    compare(straight, run(words, tmp_path / "run"))


def test_a_method_whose_clients_remember_keeps_it_on_disk(tmp_path):
    """MOON's previous model is a part of the client's state that training reads again."""
    words = [*TINY, "method=moon", "model_group=homogeneous", "model_group.architectures=[simple_cnn]"]
    folders = [run([*words, f"store={kind}"], tmp_path / kind) for kind in ("memory", "disk")]
    compare(*folders)
