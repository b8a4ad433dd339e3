"""What is recorded about a round, followed by hand."""

from types import SimpleNamespace

import pytest
import torch

from fedsaf.core.types import ClientResult, ServerContext
from fedsaf.federation.ranks import Failure
from fedsaf.federation.records import ClientFacts, RecordBuilder, RoundFacts
from fedsaf.federation.server import Server


class Aggregator:
    """Has nothing to say but its messages."""

    needs_counts, needs_uploads = True, True

    def __init__(self, setup=None):
        self.setup = setup

    def prepare(self, context):
        pass

    def setup_message(self):
        return self.setup


def message(rows, width=4):
    return {"labels": torch.arange(rows), "values": torch.zeros(rows, width)}


def result(client, batches, rows, **losses):
    return ClientResult(
        client=client,
        uploads={"prototypes": message(rows)} if rows is not None else {},
        num_samples=10,
        num_batches=batches,
        losses=losses,
        active=dict.fromkeys(losses, batches),
        seconds={"client": 1.5, "data": 0.5},
    )


def make_server(setup=None):
    channel = SimpleNamespace(
        aggregator=Aggregator(setup),
        num_bytes=lambda m: 0 if m is None else m["values"].numel() * 4,
        free_uploads=False,
    )
    return Server({"prototypes": channel}, ServerContext(num_classes=3, feature_dim=4, seed=0))


@pytest.fixture
def builder():
    clients = {0: ClientFacts("cnn", 30, 10), 1: ClientFacts("resnet4", 20, 90), 2: ClientFacts("cnn", 5, 0)}
    diagnose = lambda uploads, broadcast: {"num": len(uploads), "per_client": {u.client: {"x": 1.0} for u in uploads}}  # noqa: E731
    return RecordBuilder(clients, ["classifier"], {"prototypes": diagnose}, diagnostics_every=2, rounds=5)


def facts(round=2, **changes):
    down = {"prototypes": {"labels": torch.arange(2), "values": torch.zeros(2, 4)}}
    values = {
        "round": round,
        "cohort": [0, 1],
        "download": down,
        "broadcast": {"prototypes": {"labels": torch.arange(3), "values": torch.zeros(3, 4)}},
        "results": [result(0, 3, 2, total=1.0, ce=1.0), result(1, 1, 3, total=5.0)],
        "hits": {0: {"classifier": 10}, 1: {"classifier": 0}, 2: {"classifier": 0}},
        "server": {"prototypes/n": 3.0},
    }
    return RoundFacts(**values | changes)


def test_accuracies_are_told_apart(builder):
    record = builder.build(facts(), make_server(), 4.0)
    accuracy = record.metrics["classifier"]
    assert accuracy["pooled"] == 10 / 100
    assert accuracy["client_mean"] == (1.0 + 0.0) / 2
    assert [row["classifier"] for row in record.clients] == [1.0, 0.0, None]


def test_losses_are_means_over_steps(builder):
    metrics = builder.build(facts(), make_server(), 4.0).metrics
    assert metrics["loss"] == {"ce": 1.0, "total": (3 * 1.0 + 1 * 5.0) / 4}
    assert metrics["active"] == {"ce": 3, "total": 4}
    assert metrics["num_batches"] == 4


def test_bytes_are_exact_by_direction(builder):
    """Up 2 + 3 rows of 4 float32; down 2 rows to each of 2 clients; the third only listens."""
    metrics = builder.build(facts(), make_server(), 4.0).metrics
    assert metrics["upload_bytes"] == {"total": 80, "prototypes": 80}
    assert metrics["download_bytes"] == {"total": 64, "prototypes": 64}
    assert metrics["observer_bytes"] == 32
    assert metrics["num_prototypes"] == 3


def test_what_was_sent_once_costs_nothing_in_a_round(builder):
    server = make_server(setup=message(3))
    assert builder.build(facts(), server, 4.0).metrics["download_bytes"]["total"] == 0
    assert server.setup_bytes(3) == 3 * 48


def test_a_failed_client_is_counted_and_named(builder):
    failures = [Failure(1, "OSError: gone", "trace")]
    record = builder.build(facts(results=[result(0, 3, 2, total=1.0)], failures=failures), make_server(), 4.0)
    assert record.metrics["failed_clients"] == [1]
    assert [row["error"] for row in record.clients] == [None, "OSError: gone", None]
    assert [row["took_part"] for row in record.clients] == [True, False, False]


@pytest.mark.parametrize(("round", "due"), [(1, False), (2, True), (3, False), (4, True), (5, True)])
def test_diagnostics_come_every_kth_round_and_in_the_last(builder, round, due):
    record = builder.build(facts(round), make_server(), 4.0)
    assert record.metrics["diagnostics"] == ({"num": 2} if due else {})
    assert ("diagnostics/x" in record.clients[0]) == due


def test_a_round_without_evaluation_or_training_has_no_invented_numbers(builder):
    record = builder.build(facts(0, cohort=[], results=[], hits={}, broadcast={"prototypes": None}), make_server(), 4.0)
    assert record.metrics["classifier"] is None
    assert record.metrics["loss"] == {}
    assert record.metrics["num_prototypes"] == record.metrics["observer_bytes"] == 0


def test_clock_and_machine_are_kept_apart(builder):
    record = builder.build(facts(server_seconds=0.25, peaks={"resident_bytes": 7}), make_server(), 4.0)
    assert record.timing["client"] == 3.0
    assert record.timing["data"] == 1.0
    assert (record.timing["server"], record.timing["total"]) == (0.25, 4.0)
    assert record.timing["resident_bytes"] == 7
    assert not {"seconds", "resident_bytes", "total"} & record.metrics.keys()
