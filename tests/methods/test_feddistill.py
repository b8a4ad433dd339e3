"""FedDistill: one step by hand, class-mean logits up and down, and a client's own part taken out."""

import numpy as np
import pytest
import torch

from fedsaf.core.types import ServerContext, Upload
from fedsaf.methods.feddistill import ClassLogits, LogitChannel, LogitDistillation
from tests.methods.numeric import softmax
from tests.methods.tiny import LR, Feed, make_client, method_of, train

W = np.array([0.3, -0.2])
X, Y = np.array([[1.0, 2.0], [0.5, -1.5], [-1.0, 0.5]]), np.array([1, 0, 1])
G = np.array([0.5, 2.0])
"""Global mean logits of class 1; class 0 has none."""


def step(*words, broadcast=True):
    method = method_of("method=feddistill", *words)
    client = make_client(method, [0.3, -0.2])
    message = {"labels": torch.tensor([1]), "values": torch.tensor(G[None], dtype=torch.float32)}
    sent = {"class_logits": message if broadcast else None}
    result = train(method, client, Feed(X.tolist(), Y.tolist()), sent, epochs=1)
    return client.model.backbone.weight.detach().numpy(), result


@pytest.mark.parametrize(("targets", "soft"), [("softmax", softmax(G)), ("raw", G)])
def test_one_step_by_hand(targets, soft):
    """The two samples of class 1 also have the soft loss -sum t log p, of slope p sum t - t, mean over those two."""
    p, y, known = softmax(W * X), np.eye(2)[Y], Y == 1
    slope = ((p - y) * X).mean(0) + ((p * soft.sum() - soft) * X)[known].mean(0)
    found, result = step(f"method.targets={targets}")
    np.testing.assert_allclose(found, W - LR * slope, rtol=1e-5)
    assert result.losses["logit_distillation"] == pytest.approx(-(soft * np.log(p[known])).sum(1).mean(), rel=1e-5)


def test_first_round_is_plain_cross_entropy():
    found, result = step(broadcast=False)
    slope = ((softmax(W * X) - np.eye(2)[Y]) * X).mean(0)
    np.testing.assert_allclose(found, W - LR * slope, rtol=1e-6)
    assert result.active["logit_distillation"] == 0


def test_a_batch_without_known_classes_adds_nothing():
    method = method_of("method=feddistill")
    client = make_client(method, [0.3, -0.2])
    message = {"labels": torch.tensor([1]), "values": torch.ones(1, 2)}
    result = train(method, client, Feed([[1.0, 1.0]], [0]), {"class_logits": message}, epochs=1)
    assert result.active["logit_distillation"] == 0


def test_uploads_are_the_logits_met_in_training():
    """Two epochs on one batch: the mean of the logits before the first and before the second step."""
    method = method_of("method=feddistill")
    client = make_client(method, [0.3, -0.2])
    result = train(method, client, Feed(X.tolist(), Y.tolist()), {"class_logits": None}, epochs=2)
    after_one = step(broadcast=False)[0]
    upload = result.uploads["class_logits"]
    assert upload["labels"].tolist() == [0, 1]
    assert "counts" not in upload
    for label in (0, 1):
        expected = ((W * X)[label == Y] + (after_one * X)[label == Y]).mean(0) / 2
        np.testing.assert_allclose(upload["values"][label], expected, rtol=1e-5)


class Client:
    num_classes, feature_dim, device, round = 3, 7, torch.device("cpu"), 0

    def __init__(self):
        self.received, self.memory, self.scratch = {}, {}, {}


class View:
    def __init__(self, logits, y):
        self.logits, self.y = logits, torch.tensor(y)


def exchange(participants, aggregator, half, round):
    """Let clients upload ``value`` in every logit of the classes they hold; everyone then receives the means."""
    uploads = []
    for client, (value, labels) in participants:
        client.round, client.scratch = round, {}
        half.on_train_start(client, None)
        half.on_train_batch_end(client, View(torch.full((len(labels), 3), value), labels), 0, 1)
        uploads.append(Upload(0, half.send(client, None), len(labels)))
    aggregator.update(uploads, round)


@pytest.mark.parametrize("absent", ["keep", "drop"])
def test_own_part_is_taken_out_of_the_mean(absent):
    aggregator, half = ClassLogits(absent, True), LogitChannel(True)
    aggregator.prepare(ServerContext(num_classes=3, feature_dim=7, seed=0))
    a, b, outsider = Client(), Client(), Client()
    exchange([(a, (1.0, [0, 1])), (b, (5.0, [1, 2]))], aggregator, half, 0)
    for client in (a, b, outsider):
        half.receive(client, aggregator.broadcast())
    assert a.received["class_logits"].mask.tolist() == [False, True, True]  # class 0 is a's alone
    assert a.received["class_logits"].values[:, 0].tolist() == [0, 5, 5]
    assert b.received["class_logits"].mask.tolist() == [True, True, False]
    assert b.received["class_logits"].values[:, 0].tolist() == [1, 1, 0]
    assert outsider.received["class_logits"].values[:, 0].tolist() == [1, 3, 5]
    # Next round b alone takes part, with class 1: the kept row of class 2 still is b's, that of class 1 no longer a's.
    exchange([(b, (7.0, [1]))], aggregator, half, 1)
    for client in (a, b):
        half.receive(client, aggregator.broadcast())
    assert a.received["class_logits"].mask.tolist() == [False, True, absent == "keep"]
    assert a.received["class_logits"].values[1, 0] == 7
    assert b.received["class_logits"].mask.tolist() == [absent == "keep", False, False]


def test_excluding_is_told_and_paid_for_only_where_it_is_chosen():
    bytes_of = {}
    for exclude in ("false", "true"):
        channel = method_of("method=feddistill", f"method.exclude_self={exclude}").channels["class_logits"]
        channel.aggregator.prepare(ServerContext(num_classes=3, feature_dim=7, seed=0))
        exchange([(Client(), (1.0, [0, 1]))], channel.aggregator, channel.client, 0)
        bytes_of[exclude] = channel.num_bytes(channel.aggregator.broadcast())
    assert bytes_of == {"false": 2 * 3 * 4, "true": 2 * 3 * 4 + 2 * 2 * 8}


def test_own_part_survives_a_checkpoint():
    client = make_client(method_of("method=feddistill"), [0.3, -0.2])
    half = LogitChannel(True)
    half.on_train_start(client, None)
    half.on_train_batch_end(client, View(torch.ones(1, 2), [1]), 0, 1)
    half.send(client, None)
    assert {"memory.own_logits", "memory.own_rounds"} <= set(client.export_state())


def test_server_state_is_complete():
    aggregator = ClassLogits("keep", True)
    aggregator.prepare(ServerContext(num_classes=3, feature_dim=7, seed=0))
    state = aggregator.state_dict()
    assert state["values"].shape == (3, 3)
    for name in state:
        with pytest.raises(ValueError, match="ClassLogits|Mean"):
            aggregator.load_state_dict({key: value for key, value in state.items() if key != name})


def test_unknown_targets_list_the_known_ones():
    with pytest.raises(ValueError, match="softmax or raw"):
        LogitDistillation("hard")
