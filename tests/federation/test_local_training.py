import math

import pytest
import torch
from torch import nn

from fedsaf.data.federated import FederatedData
from fedsaf.federation.local_training import LocalTrainingPlan, LossLog, train_mode
from fedsaf.federation.ranks import ClientError
from tests.federation.harness import LIGHT, TINY, fresh, make_job, run, run_job, with_partition


def test_means_are_over_the_steps_of_all_epochs():
    log = LossLog(client=3, round=4)
    for epoch in ([1.0, 2.0], [6.0]):
        for value in epoch:
            term = torch.tensor(value, requires_grad=True)
            log.add(term * 2, {"a": term, "b": torch.tensor(0.0)})
        log.close_epoch()
    assert log.num_steps == 3
    assert log.means() == {"a": 3.0, "b": 0.0, "total": 6.0}
    assert log.active == {"a": 3, "b": 0}


def test_no_step_no_means():
    log = LossLog(0, 0)
    log.close_epoch()
    assert log.means() == {}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_names_client_round_and_term(bad):
    log = LossLog(client=3, round=4)
    log.add(torch.tensor(bad), {"good": torch.tensor(1.0), "culprit": torch.tensor(bad)})
    with pytest.raises(FloatingPointError, match=f"client 3, round 5: the loss term culprit is {bad}"):
        log.close_epoch()


def test_one_sample_is_not_normalised_by_itself():
    client = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout())
    train_mode(client, num_train=1)
    assert [module.training for module in client] == [True, False, True]
    train_mode(client, num_train=2)
    assert all(module.training for module in client)


def test_an_unknown_order_is_refused():
    with pytest.raises(ValueError, match="choose each_epoch or fixed"):
        LocalTrainingPlan(seed=0, local_epochs=1, shuffle="sometimes")


def test_the_order_depends_on_the_run_seed_and_not_on_who_trained_before(straight, job, again, monkeypatch):
    """Clients trained in reverse order, under another global stream: the same bits."""
    from fedsaf.federation.ranks import Ranks
    from tests.federation.harness import compare

    own = Ranks.own
    monkeypatch.setattr(Ranks, "own", lambda self, clients: own(self, clients)[::-1])
    torch.manual_seed(99)
    compare(straight, again())


def test_one_client_with_everything_is_plain_training(tmp_path):
    """Local with one client: the weights of a bare loop over the same batches, to the bit."""
    words = [*TINY, "model_group.architectures=[simple_cnn]", "num_clients=1", "rounds=2", "method=local"]
    words += ["protocol.shuffle=fixed", "partition=iid", "~partition.min_samples"]
    words = [word for word in words if "min_samples" not in word]
    job = make_job(words, tmp_path)
    run_job(fresh(job, tmp_path / "run"))
    client = job.factory.build(0)
    optimizer = torch.optim.SGD(client.parameters(), lr=0.01)
    data = job.data.client(0)
    client.train()
    for _ in range(2):
        for start in range(0, data.num_train, 8):
            rows = data.train[start : start + 8]
            if data.num_train - start == 1:
                pytest.fail("choose a size without a remainder of one")
            x = (data.inputs[rows].float() / 255 - 0.5) / 0.5
            optimizer.zero_grad()
            nn.functional.cross_entropy(client(x)[1], data.labels[rows]).backward()
            optimizer.step()
    from tests.federation.harness import tensors

    expected = client.state_dict()
    found = tensors(tmp_path / "run")["client 0"]
    assert found.keys() == expected.keys()
    for name in found:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-5, atol=1e-6)


def failing(job, client, bad):
    """Return the job with one image set of ``client`` that raises when it is read."""
    train = [own.copy() for own in job.data.record.train]
    train[client][-1] = bad
    labels = job.data.dataset.labels
    clipped = with_partition(job, job.data.record.train, job.data.record.test)
    record = clipped.data.record
    record = type(record)(train, record.test, record.train_counts, record.test_counts, record.class_names, record.facts)
    import dataclasses

    assert bad >= len(labels)
    return dataclasses.replace(clipped, data=FederatedData(job.data.dataset, record))


@pytest.mark.parametrize("everyone", [False, True])
def test_a_client_that_raises_stops_the_run_with_its_name(job, tmp_path, everyone):
    with pytest.raises(ClientError, match=r"client 2, round 1: IndexError"):
        run_job(failing(fresh(job, tmp_path / "run"), 2, 10**6))


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    with pytest.raises(ClientError, match=r"client \d, round \d: the loss term cross_entropy is nan"):
        run([*TINY, *LIGHT, "optimizer.lr=1e12", "alignment=none", "local_epochs=3", "batch_size=4"], tmp_path / "run")


def test_skipping_goes_on_counts_and_records(tmp_path):
    job = make_job([*TINY, *LIGHT, "on_client_error=skip"], tmp_path / "never")
    run_job(failing(fresh(job, tmp_path / "run"), 2, 10**6))
    from fedsaf.tracking.recorder import Recorder

    recorder = Recorder(tmp_path / "run")
    assert [row["failed_clients"] for row in recorder.rows()] == [[], [2], [2], [2]]
    rows = [row for row in recorder.client_rows() if row["round"] == 1]
    assert "IndexError" in rows[2]["error"]
    assert not rows[2]["took_part"]
    assert [row["error"] for row in rows if row["client"] != 2] == [None] * 3


def test_all_clients_failing_is_fatal_even_then(tmp_path):
    words = [*TINY, *LIGHT, "on_client_error=skip", "optimizer.lr=1e30", "alignment=none"]
    with pytest.raises(ClientError, match="more clients"):
        run(words, tmp_path / "run")


def test_a_client_smaller_than_the_batch_trains_unless_the_protocol_drops_it(tmp_path):
    """Under ``drop_strict`` it does not; a federation of such clients alone is refused, see test_job."""
    from fedsaf.tracking.recorder import Recorder

    small = [*TINY, *LIGHT, "batch_size=100", "rounds=1"]
    for last_batch in ("merge", "drop"):
        folder = run([*small, f"protocol.last_batch={last_batch}"], tmp_path / last_batch)
        assert {row["num_batches"] for row in Recorder(folder).client_rows() if row["round"] == 1} == {1}
        assert Recorder(folder).rows()[1]["num_batches"] == 4
