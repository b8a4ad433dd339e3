from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedsaf.core.types import ServerContext
from fedsaf.methods.fedsa import AnchorMargin
from fedsaf.tracking.recorder import Recorder
from tests.federation.harness import TINY, make_job, run_job, tensors
from tests.methods.steps import array, draw, method_of, stand_in, step

LABELS = [0, 0, 1, 3, 3, 3]
WORDS = (*TINY, "method=fedsa")
HOOK = AnchorMargin()


def started(*words):
    """The method, and a client that has been sent the anchors."""
    method, client = method_of(*WORDS, *words), stand_in(feature_dim=5)
    channel = method.channels["prototypes"]
    channel.aggregator.prepare(ServerContext(4, 5, seed=0))
    channel.client.receive(client, channel.aggregator.broadcast())
    return method, client


def mean_nearest(rows):
    return (np.linalg.norm(rows[:, None] - rows[None], axis=-1) + np.diag([np.inf] * len(rows))).min(1).mean()


def log_loss(scores, labels):
    return (np.log(np.exp(scores).sum(1)) - scores[np.arange(len(labels)), labels]).mean()


def test_margin_before_and_after_the_first_participation():
    """g_local has no say before the first, then it is the mean nearest distance; the larger one counts."""
    _, client = started()
    across = mean_nearest(array(client.received["prototypes"].values))
    far = torch.tensor([[0.0] * 5, [100.0] + [0.0] * 4, [0.0, 300.0, 0.0, 0.0, 0.0]])  # nearest: 100, 100, 300
    for own, expected in ((None, across), (far * 1e-9, across), (far, 500 / 3)):
        client.memory = {} if own is None else {"prototypes.means": own}
        HOOK.on_train_start(client, None)
        assert client.scratch["anchor_margin"] == pytest.approx(expected, rel=1e-5)


def test_identical_anchors_leave_a_margin_of_zero_before_the_first_participation():
    _, client = started()
    client.received["prototypes"].values.fill_(1.0)
    HOOK.on_train_start(client, None)
    assert client.scratch["anchor_margin"] == 0


def test_client_loss_against_numpy():
    """CE + 10 MSE(z, A^y) + CE(-(|z - A^c| + g [c = y])) + CE(h(A^c), c) over all four classes."""
    method, client = started()
    method.callbacks[0].on_train_start(client, None)
    view, A = step(client, LABELS), array(client.received["prototypes"].values)
    z, y = array(view.z), view.y.numpy()
    W, b = array(client.model.head.weight), array(client.model.head.bias)
    distances = np.linalg.norm(z[:, None] - A[None], axis=-1)
    expected = {
        "cross_entropy": log_loss(z @ W.T + b, y),
        "instance_alignment": ((z - A[y]) ** 2).mean(),
        "margin_contrast": log_loss(-(distances + mean_nearest(A) * np.eye(4)[y]), y),
        "calibration": log_loss(A @ W.T + b, np.arange(4)),
    }
    total, values = method.objective(view)
    assert {name: value.item() for name, value in values.items()} == pytest.approx(expected, rel=1e-5)
    weights = {"instance_alignment": 10.0}
    assert total.item() == pytest.approx(sum(weights.get(n, 1.0) * v for n, v in expected.items()), rel=1e-5)


def test_calibration_reaches_the_head_alone():
    method, client = started()
    method.callbacks[0].on_train_start(client, None)
    view = step(client, LABELS)
    method.objective.terms["calibration"].term(view).backward()
    assert view.z.grad is None
    assert client.model.head.weight.grad.abs().sum() > 0


def test_a_constructor_without_vectors_at_the_start_is_refused():
    with pytest.raises(ValueError, match="prototype=semantic_anchor"):
        HOOK.on_train_start(stand_in(), None)


def test_what_is_remembered_is_what_was_sent():
    method = method_of(*WORDS, "method.collect=running_all")
    first, second = (method.channels[name].client for name in ("prototypes", "client_means"))
    client = stand_in(feature_dim=5)
    first.on_train_start(client, [])
    second.on_train_start(client, [])
    client.scratch["prototypes"].add(draw(3, 5), torch.tensor([1, 3, 3]))
    sent = first.send(client, [])
    again = second.send(client, [])
    assert sent["labels"].tolist() == [1, 3]
    assert all(torch.equal(sent[name], again[name]) for name in sent)
    assert client.memory["prototypes.means"].shape == (2, 5)
    first.on_train_start(client, [])
    client.scratch["prototypes"].add(draw(1, 5), torch.tensor([3]))
    assert first.send(client, [])["labels"].tolist() == [3]
    assert client.memory == {}  # one class has no margin


def test_answers_by_the_averaged_client_prototypes_not_by_the_anchors():
    method, client = started()
    channel = method.channels["client_means"]
    channel.aggregator.prepare(ServerContext(4, 5, seed=0))
    rows = draw(2, 5)
    uploads = [
        SimpleNamespace(client=i, message={"labels": torch.tensor([1, 2]), "values": rows + shift})
        for i, shift in enumerate((-0.5, 0.5))
    ]
    channel.aggregator.update(uploads, 0)
    channel.client.receive(client, channel.aggregator.broadcast())
    assert method.predictor == "nearest_prototype"
    assert method.predictors["nearest_prototype"](client, rows, None).tolist() == [1, 2]
    torch.testing.assert_close(client.received["client_means"].values[1:3], rows)


@pytest.mark.parametrize("variant", ["ema", "train"])
def test_a_run(variant, tmp_path):
    """What travels: |C_i| d up, counted once; C d anchors down, and from round 1 on the client means too."""
    job = make_job([*WORDS, f"prototype.variant={variant}", "prototype.epochs=2", "rounds=2"], tmp_path)
    run_job(job)
    rows = list(Recorder(tmp_path).rows())
    held, classes = (job.data.record.train_counts > 0).sum(axis=1), 4
    assert [row["upload_bytes"]["total"] for row in rows] == [0, *[int(held.sum()) * 16 * 4] * 2]
    anchors = 4 * classes * 16 * 4
    assert [row["download_bytes"]["total"] for row in rows] == [0, anchors, 2 * anchors]
    assert rows[1]["active"]["margin_contrast"] == rows[1]["num_batches"] > 0
    assert rows[0]["nearest_prototype"]["pooled"] == 0
    assert ("prototypes/loss" in rows[1]["server"]) is (variant == "train")
    states = tensors(tmp_path)
    remembered = {i: states[f"client {i}"].get("memory.prototypes.means", ()) for i in range(4)}
    assert {i: len(rows) for i, rows in remembered.items()} == {i: held[i] if held[i] > 1 else 0 for i in range(4)}
