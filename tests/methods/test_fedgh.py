"""FedGH: the server's training of the head in NumPy, and a head that stays when nobody uploads."""

import numpy as np
import pytest
import torch
from torch import nn

from fedsaf.core.seeding import torch_generator
from fedsaf.core.types import ServerContext, Upload
from fedsaf.methods.fedgh import HeadTrainer, linear_head
from tests.methods.numeric import array, softmax
from tests.methods.tiny import Feed, make_client, method_of, train

START = {"weight": np.array([[0.2, -0.1], [0.4, 0.3], [-0.5, 0.6]]), "bias": np.array([0.0, 0.1, -0.2])}
PAIRS = [(0, [1.0, 2.0]), (2, [-1.0, 0.5]), (0, [0.5, -0.5]), (1, [2.0, 1.0]), (1, [0.0, 3.0])]
UPLOADS = [PAIRS[:2], [], PAIRS[2:]]
"""Three clients; the second showed no class."""


def trainer(epochs=1, batch_size=2, lr=0.1, seed=3):
    made = HeadTrainer(epochs, batch_size, lr)
    start = {name: torch.tensor(value, dtype=torch.float32) for name, value in START.items()}
    made.prepare(ServerContext(3, 2, seed=seed, initial=lambda scope: dict(start)))
    return made


def uploads():
    return [
        Upload(
            client,
            {
                "labels": torch.tensor([label for label, _ in pairs], dtype=torch.int64),
                "values": torch.tensor([mean for _, mean in pairs], dtype=torch.float32).view(-1, 2),
            },
            10,
        )
        for client, pairs in enumerate(UPLOADS)
    ]


def by_hand(epochs, batch_size, lr, rounds, seed=3):
    """SGD in NumPy over the same orders: W <- W - lr mean((p - y) x^T)."""
    W, b = START["weight"].copy(), START["bias"].copy()
    x, y = np.array([mean for _, mean in PAIRS]), np.array([label for label, _ in PAIRS])
    for t in range(rounds):
        generator = torch_generator(seed, "head_trainer/shuffle", t)
        for _ in range(epochs):
            order = torch.randperm(len(y), generator=generator).numpy()
            for start in range(0, len(y), batch_size):
                rows = order[start : start + batch_size]
                error = (softmax(x[rows] @ W.T + b) - np.eye(3)[y[rows]]) / len(rows)
                W, b = W - lr * error.T @ x[rows], b - lr * error.sum(0)
    return W, b


@pytest.mark.parametrize(("epochs", "batch_size", "rounds"), [(1, 2, 1), (3, 2, 2), (2, 100, 1)])
def test_training_by_hand_over_rounds(epochs, batch_size, rounds):
    server = trainer(epochs, batch_size)
    for t in range(rounds):
        assert server.update(uploads(), t)["loss"] > 0
    for found, expected in zip(server.broadcast().values(), by_hand(epochs, batch_size, 0.1, rounds), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_without_prototypes_the_head_stays():
    server = trainer()
    assert server.update([], 0) == {}
    assert server.update(uploads()[1:2], 0) == {}
    np.testing.assert_allclose(server.broadcast()["weight"], START["weight"], rtol=1e-6)


def test_a_class_that_nobody_uploads_is_only_pushed_away():
    server = trainer()
    server.update(uploads()[:1], 0)  # classes 0 and 2
    assert server.broadcast()["bias"][1] < START["bias"][1]


def test_client_takes_the_head_over_and_uploads_means_after_training():
    """Features are w x: the upload holds those of the trained w, in evaluation mode, with no counts."""
    method = method_of("method=fedgh")
    client = make_client(method, [1.0, 1.0])
    client.model.head = nn.Linear(2, 2)
    head = {"weight": torch.tensor([[1.0, 0.0], [0.0, 1.0]]), "bias": torch.zeros(2)}
    method.channels["head"].client.receive(client, head)
    assert torch.equal(client.model.head.weight, head["weight"])
    x = np.array([[1.0, 2.0], [3.0, -1.0], [1.0, 0.0]])
    result = train(method, client, Feed(x.tolist(), [1, 0, 1]), {"head": head}, epochs=2)
    upload, w = result.uploads["head"], array(client.model.backbone.weight)
    assert upload["labels"].tolist() == [0, 1]
    assert "counts" not in upload
    np.testing.assert_allclose(upload["values"], [w * x[1], w * (x[0] + x[2]) / 2], rtol=1e-6)


def test_server_epochs_are_those_of_the_paper():
    assert method_of("method=fedgh").channels["head"].aggregator.epochs == 1
    assert method_of("method=fedgh", "paper=fedsaf").channels["head"].aggregator.epochs == 100
    assert method_of("method=fedgh", "method.server_epochs=7").channels["head"].aggregator.epochs == 7


def test_state_restores_strictly():
    server, other = trainer(), trainer(seed=4)
    server.update(uploads(), 0)
    other.load_state_dict(server.state_dict())
    assert torch.equal(other.broadcast()["weight"], server.broadcast()["weight"])
    with pytest.raises(ValueError, match="bias"):
        other.load_state_dict({"weight": server.state_dict()["weight"]})


def test_refusals_say_why():
    with pytest.raises(ValueError, match="one linear layer"):
        linear_head({"0.weight": torch.zeros(1), "2.weight": torch.zeros(1)})
    with pytest.raises(ValueError, match="epochs"):
        HeadTrainer(0, 10, 0.01)
    with pytest.raises(FloatingPointError, match="client 0"):
        trainer().update([Upload(0, {"labels": torch.tensor([0]), "values": torch.full((1, 2), torch.nan)}, 1)], 0)
