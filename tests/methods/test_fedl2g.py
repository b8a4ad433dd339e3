"""FedL2G: the meta gradient by differences of the whole two-step computation, the quiz set, the server's step."""

import numpy as np
import pytest
import torch
from torch import nn

from fedsaf.core.types import ServerContext, Upload
from fedsaf.methods.fedl2g import GuidanceTrainer, QuizSet, gather
from fedsaf.models.split import SplitModel
from tests.methods.numeric import array, cross_entropy, slopes, softmax
from tests.methods.tiny import LR, Feed, make_client, method_of, train

V = np.array([[0.5, -0.4], [0.1, 0.8]])
STUDY = np.array([[1.0, 2.0], [0.5, -1.5], [-0.3, 0.7]]), np.array([1, 0, 1])
QUIZ = np.array([[-1.0, 0.4], [0.6, 1.2]]), np.array([0, 1])
W, H = np.array([[0.3, -0.2], [0.5, 0.7]]), np.array([[0.4, -0.1], [-0.6, 0.2]])


def quiz_loss(V, logit):
    """One SGD step of W and H on CE + MSE(z or logits, V^y), then the cross-entropy of the quiz batch."""
    (x, y), (quiz_x, quiz_y) = STUDY, QUIZ
    z = x @ W.T
    logits = z @ H.T
    at_logits = (softmax(logits) - np.eye(2)[y]) / len(y)
    at_z = np.zeros_like(z)
    if logit:
        at_logits = at_logits + 2 * (logits - V[y]) / logits.size
    else:
        at_z = 2 * (z - V[y]) / z.size
    at_z = at_z + at_logits @ H
    stepped_W, stepped_H = W - LR * at_z.T @ x, H - LR * at_logits.T @ z
    return cross_entropy(quiz_x @ stepped_W.T @ stepped_H.T, quiz_y)


def linear(weight):
    layer = nn.Linear(2, 2, bias=False)
    layer.weight.data = torch.tensor(weight, dtype=torch.float32)
    layer.num_features = 2
    return layer


def tensors(pair):
    return torch.tensor(pair[0], dtype=torch.float32), torch.tensor(pair[1])


def guided(method, model):
    client = make_client(method, [0.0, 0.0])
    client.model = model
    values = {"labels": torch.tensor([0, 1]), "values": torch.tensor(V, dtype=torch.float32)}
    method.channels["guidance"].client.receive(client, values)
    return client


@pytest.mark.parametrize("name", ["fedl2g", "fedl2g_logit"])
def test_meta_gradient_by_differences(name):
    method = method_of(f"method={name}", f"optimizer.lr={LR}")
    client = guided(method, SplitModel(linear(W), linear(H), 2))
    found = method.channels["guidance"].client.meta_gradient(client, tensors(STUDY), tensors(QUIZ))
    expected = slopes(lambda V: quiz_loss(V, name == "fedl2g_logit"), {"V": V})["V"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert np.abs(expected).max() > 1e-3
    assert np.array_equal(array(client.model.head.weight), array(torch.tensor(H, dtype=torch.float32)))


def test_meta_step_leaves_weights_and_statistics_alone():
    method = method_of("method=fedl2g")
    trunk = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    trunk.num_features = 2
    client = guided(method, SplitModel(trunk, linear(H), 2))
    before = {name: tensor.clone() for name, tensor in client.state_dict().items()}
    assert method.channels["guidance"].client.meta_gradient(client, tensors(STUDY), tensors(QUIZ)).any()
    assert all(torch.equal(tensor, before[name]) for name, tensor in client.state_dict().items())


def test_client_trains_towards_the_guide_by_hand():
    """z = w x are the logits: CE, and MSE over B d = 6 entries. This loader gives its batch whatever is chosen."""
    method = method_of("method=fedl2g", "batch_size=2", "method.warm_up=0")
    client = make_client(method, [0.3, -0.2])
    sent = {"guidance": {"labels": torch.tensor([0, 1]), "values": torch.tensor(V, dtype=torch.float32)}}
    x, y = STUDY
    result = train(method, client, Feed(x.tolist(), y.tolist()), sent, epochs=1)
    w = np.array([0.3, -0.2])
    slope = (((softmax(w * x) - np.eye(2)[y]) / 3 + 2 * (w * x - V[y]) / 6) * x).sum(0)
    np.testing.assert_allclose(array(client.model.backbone.weight), w - LR * slope, rtol=1e-5)
    assert result.losses["guidance"] == pytest.approx(((w * x - V[y]) ** 2).mean(), rel=1e-5)


class Recording(Feed):
    def train_pass(self, positions):
        self.positions = positions.tolist()
        return super().train_pass(positions)


def test_the_loop_trains_on_what_the_hook_leaves():
    method = method_of("method=fedl2g", "batch_size=1", "method.warm_up=0")
    sent = {"guidance": {"labels": torch.tensor([0, 1]), "values": torch.tensor(V, dtype=torch.float32)}}
    loader = Recording([[1.0, 2.0], [0.5, -1.5], [0.2, 0.9]], [0, 1, 1])
    train(method, make_client(method, [0.3, -0.2]), loader, sent, epochs=1)
    assert loader.positions == [1, 2]


class Client:
    rounds = 300

    def __init__(self, round=60):
        self.round, self.scratch = round, {}


@pytest.mark.parametrize(("n", "quiz"), [(100, 10), (20, 10), (15, 7), (3, 1), (1, 0)])
def test_quiz_is_the_first_samples_and_at_most_half(n, quiz):
    client = Client()
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    if n - quiz == 1:
        client.modules = lambda: iter(())
    kept = QuizSet(1, 10, 50).select_samples(client, order)
    assert sorted(kept.tolist()) == list(range(quiz, n))
    assert kept.tolist() == [i for i in order.tolist() if i >= quiz]  # the order stays
    assert client.scratch == {"quiz_size": quiz, "train_size": n - quiz}


@pytest.mark.parametrize(
    ("round", "rounds", "trains"),
    [(49, 300, False), (50, 300, True), (3, 16, False), (4, 16, True), (0, 3, True)],
)
def test_warm_up_trains_nothing_and_never_takes_more_than_a_quarter(round, rounds, trains):
    client = Client(round)
    client.rounds = rounds
    assert (len(QuizSet(1, 10, 50).select_samples(client, torch.arange(100))) > 0) == trains


def test_a_single_training_sample_has_no_batch_statistics():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).train()
    model.round, model.rounds, model.scratch = 0, 3, {}
    assert QuizSet(1, 10, 0).select_samples(model, torch.arange(2)).tolist() == [1]
    assert (model.training, model[1].training) == (True, False)


def test_upload_holds_the_classes_of_the_study_batch():
    """Four samples, the first two are the quiz; the study batch holds class 1 alone, so only its row can matter."""
    method = method_of("method=fedl2g", "batch_size=2", "method.warm_up=0")
    client = make_client(method, [0.3, -0.2])
    sent = {"guidance": {"labels": torch.tensor([0, 1]), "values": torch.tensor(V, dtype=torch.float32)}}
    x = [[1.0, 2.0], [0.5, -1.5], [0.2, 0.9], [-1.0, 0.3]]
    upload = train(method, client, Feed(x, [0, 1, 1, 1]), sent, epochs=1).uploads["guidance"]
    assert upload["labels"].tolist() == [1]
    assert upload["values"].shape == (1, 2)
    alone = train(method, client, Feed(x[:1], [0]), sent, epochs=1)  # no quiz without a second sample
    assert alone.uploads["guidance"] == {}


def test_samples_are_found_across_batches():
    batches = [(torch.arange(i, j).float()[:, None], torch.arange(i, j)) for i, j in ((0, 4), (4, 8), (8, 9))]
    x, y = gather(batches, torch.tensor([8, 0, 5, 4]))
    assert y.tolist() == [8, 0, 5, 4]
    assert x[:, 0].tolist() == [8, 0, 5, 4]


def server(max_norm=100.0, space="features"):
    made = GuidanceTrainer(space, lr=0.5, max_norm=max_norm)
    made.prepare(ServerContext(num_classes=3, feature_dim=2, seed=1))
    return made


def gradients(client, labels, rows):
    return Upload(client, {"labels": torch.tensor(labels), "values": torch.tensor(rows)}, 1)


@pytest.mark.parametrize(("max_norm", "scale"), [(100.0, 1.0), (2.5, 0.5)])
def test_server_steps_against_the_mean_by_class(max_norm, scale):
    """Class 0: mean of (6, 0) and (0, 0) = (3, 0); class 2: (0, 4) from one client; class 1: nothing. Norm 5."""
    made = server(max_norm)
    before = made.broadcast()["values"].clone()
    report = made.update([gradients(0, [0, 2], [[6.0, 0.0], [0.0, 4.0]]), gradients(1, [0], [[0.0, 0.0]])], 0)
    assert report["gradient_norm"] == pytest.approx(5)
    moved = made.broadcast()["values"] - before
    np.testing.assert_allclose(moved, -0.5 * scale * np.array([[3.0, 0], [0, 0], [0, 4.0]]), atol=1e-6)


def test_guide_exists_from_the_first_round_and_stays_without_uploads():
    made = server()
    before = made.broadcast()
    assert before["labels"].tolist() == [0, 1, 2]
    assert made.update([], 0) == {}
    assert torch.equal(made.broadcast()["values"], before["values"])
    assert server(space="logits").broadcast()["values"].shape == (3, 3)
    with pytest.raises(ValueError, match="values"):
        made.load_state_dict({})


def test_choices_are_checked():
    with pytest.raises(ValueError, match="features or logits"):
        GuidanceTrainer("inputs", 0.1, 1.0)
    with pytest.raises(ValueError, match="warm_up"):
        QuizSet(1, 10, -1)
