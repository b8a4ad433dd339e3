import math

import numpy as np
import pytest
import torch

from fedsaf.core.seeding import torch_generator
from fedsaf.core.types import ServerContext
from fedsaf.losses.contrastive import margin_contrastive
from fedsaf.methods.fedtgp import Trainable
from fedsaf.prototypes.margins import max_of_min, max_pair, nearest_distances

P = torch.tensor([[1, 0, 0], [0, 2, 0], [0, 0, 3], [1, 1, 1]], dtype=torch.float64)
Q = torch.tensor([[2, 0, 1], [0, 1, 0], [1, 0, 0], [0, 1, 1]], dtype=torch.float64)


def build(**changes):
    settings = {
        "epochs": 1,
        "batch_size": 100,
        "lr": 0.1,
        "margin": "max_pair",
        "max_margin": 100.0,
        "fixed_margin": 1.0,
        "network": True,
        "send_initial": False,
        "predict_unseen": False,
    }
    constructor = Trainable(**settings | changes)
    constructor.prepare(ServerContext(4, 3, seed=5))
    return constructor


def uploads(upload):
    return [
        upload(0, {0: ([1.0, 0.0, 0.5], 4), 1: ([0.0, 2.0, 0.0], 2)}, d=3),
        upload(1, {0: ([3.0, 1.0, 0.0], 1), 3: ([-1.0, 1.0, 1.0], 7)}, d=3),
        upload(4, {3: ([0.0, -1.0, 2.0], 7)}, d=3),
    ]


@pytest.mark.parametrize(
    ("margin", "total", "mean"),
    [(0.0, 5.52985989, 1.38246497), (1.0, 8.72097123, 2.18024281), (2.0, 12.35946082, 3.08986520)],
)
def test_golden_loss(margin, total, mean):
    value = margin_contrastive(P, torch.arange(4), Q, margin).item()
    assert value == pytest.approx(mean, abs=1e-8)
    assert 4 * value == pytest.approx(total, abs=2e-8)


def test_golden_margins():
    assert max_pair(Q) == pytest.approx(2.44948974, abs=1e-8)
    assert max_of_min(Q) == pytest.approx(1.41421356, abs=1e-8)
    assert nearest_distances(Q).mean().item() == pytest.approx(1.20710678, abs=1e-8)


def test_margins_without_pairs():
    for rows in (Q[:0], Q[:1]):
        assert (max_pair(rows), max_of_min(rows)) == (0, 0)
    assert (max_pair(torch.zeros(3, 2)), max_of_min(torch.zeros(3, 2))) == (0, 0)


def test_loss_gradient_equals_finite_differences():
    table = (Q + 0.1).requires_grad_()  # Q itself has a row in common with P, where the distance has no derivative
    assert torch.autograd.gradcheck(lambda table: margin_contrastive(P, torch.arange(4), table, 1.0), (table,))


def test_zero_distance_has_a_finite_gradient():
    table = P.clone().requires_grad_()
    margin_contrastive(P, torch.arange(4), table, 1.0).backward()
    assert table.grad.isfinite().all()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # Centroids of the uploads: (2, .5, .25), (0, 2, 0), (-.5, 0, 1.5). Squared distances 01: 4 + 2.25 + .0625,
        # 02: 6.25 + .25 + 1.5625, 12: .25 + 4 + 2.25. Nearest: 6.3125, 6.3125, 6.5.
        ({"margin": "max_pair"}, math.sqrt(8.0625)),
        ({"margin": "max_of_min"}, math.sqrt(6.5)),
        ({"margin": "max_pair", "max_margin": 1.5}, 1.5),
        ({"margin": "fixed", "fixed_margin": 7.0}, 7.0),
        ({"margin": "none"}, 0.0),
    ],
)
def test_margin_rules(upload, changes, expected):
    assert build(**changes).update(uploads(upload), 0)["margin"] == pytest.approx(expected, abs=1e-6)


def test_margin_of_one_class_is_zero(upload):
    for rule in ("max_pair", "max_of_min"):
        assert build(margin=rule).update([upload(0, {2: ([1.0, 2.0, 3.0], 1)}, d=3)], 0)["margin"] == 0


def step_by_hand(state, points, labels, margin, lr):
    """One SGD step in NumPy: loss, then the chain rule through distance, second layer, ReLU, first layer."""
    A = state["embeddings"]
    hidden = A @ state["network.0.weight"].T + state["network.0.bias"]
    active = np.maximum(hidden, 0)
    G = active @ state["network.2.weight"].T + state["network.2.bias"]
    difference = G[None] - points[:, None]
    distance = np.sqrt((difference**2).sum(-1))
    target = np.eye(len(A))[labels]
    scores = np.exp(-(distance + margin * target))
    softmax = scores / scores.sum(1, keepdims=True)
    loss = -np.log((softmax * target).sum(1)).mean()
    by_distance = (target - softmax) / len(points)
    by_G = (by_distance[..., None] * difference / distance[..., None]).sum(0)
    by_hidden = by_G @ state["network.2.weight"] * (hidden > 0)
    gradients = {
        "network.2.weight": by_G.T @ active,
        "network.2.bias": by_G.sum(0),
        "network.0.weight": by_hidden.T @ A,
        "network.0.bias": by_hidden.sum(0),
        "embeddings": by_hidden @ state["network.0.weight"],
    }
    return loss, {name: state[name] - lr * gradients[name] for name in gradients}


@pytest.mark.parametrize(("epochs", "batch_size"), [(1, 5), (2, 2)])
def test_training_against_numpy(upload, epochs, batch_size):
    constructor = build(epochs=epochs, batch_size=batch_size, margin="fixed", fixed_margin=0.5)
    state = {k: v.double().numpy() for k, v in constructor.state_dict().items() if k not in ("mask", "seen")}
    points = np.concatenate([u.message["values"].double().numpy() for u in uploads(upload)])
    labels = np.concatenate([u.message["labels"].numpy() for u in uploads(upload)])
    order = torch_generator(5, "prototypes/trainable/shuffle", 3)
    for _ in range(epochs):
        permutation, losses = torch.randperm(5, generator=order).numpy(), []
        for start in range(0, 5, batch_size):
            batch = permutation[start : start + batch_size]
            loss, state = step_by_hand(state, points[batch], labels[batch], 0.5, lr=0.1)
            losses += [loss] * len(batch)
    metrics = constructor.update(uploads(upload), round=3)
    assert metrics["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    trained = constructor.state_dict()
    for name, expected in state.items():
        np.testing.assert_allclose(trained[name].numpy(), expected, rtol=1e-5, atol=1e-6)


def test_training_separates_the_classes(upload):
    constructor = build(epochs=300, network=False)
    before = constructor.update(uploads(upload), 0)["loss"]
    after = constructor.update(uploads(upload), 1)["loss"]
    assert after < before
    table = constructor.broadcast()["values"]
    for item in uploads(upload):
        assert torch.cdist(item.message["values"], table).argmin(dim=1).tolist() == item.message["labels"].tolist()


def test_class_nobody_holds_is_a_negative_and_not_seen(upload):
    constructor = build()
    assert constructor.broadcast() is None
    constructor.update(uploads(upload), 0)
    assert constructor.broadcast()["labels"].tolist() == [0, 1, 2, 3]
    assert constructor._seen.tolist() == [True, True, False, True]
    constructor.update([upload(0, {2: ([0.0, 0.0, 1.0], 1)}, d=3)], 1)
    assert constructor._seen.all()


def test_nothing_uploaded_trains_nothing(upload):
    constructor = build()
    before = constructor.state_dict()
    assert constructor.update([upload(0, {}, d=3)], 0) == {"num_prototypes": 0.0}
    assert all(torch.equal(before[name], value) for name, value in constructor.state_dict().items())


def test_send_initial_sends_the_untrained_table():
    constructor = build(send_initial=True)
    state = constructor.state_dict()
    hidden = (state["embeddings"] @ state["network.0.weight"].T + state["network.0.bias"]).relu()
    expected = hidden @ state["network.2.weight"].T + state["network.2.bias"]
    torch.testing.assert_close(constructor.broadcast()["values"], expected)
    assert not constructor._seen.any()


def test_without_network_the_embeddings_are_the_prototypes(upload):
    constructor = build(network=False, send_initial=True)
    assert constructor.state_dict().keys() == {"embeddings", "mask", "seen"}
    assert torch.equal(constructor.broadcast()["values"], constructor.state_dict()["embeddings"])
    constructor.update(uploads(upload), 0)
    assert torch.equal(constructor.broadcast()["values"], constructor.state_dict()["embeddings"])


def test_size_at_the_papers_dimensions():
    constructor = build()
    constructor.prepare(ServerContext(100, 512, seed=0))
    sizes = [value.numel() for name, value in constructor.state_dict().items() if name not in ("mask", "seen")]
    assert sum(sizes) == 576_512


def test_draws_depend_on_seed_and_round_alone(upload):
    tables = []
    for global_seed, seed, round in ((0, 5, 0), (1, 5, 0), (0, 6, 0), (0, 5, 1)):
        torch.manual_seed(global_seed)
        constructor = build(batch_size=2)
        constructor.prepare(ServerContext(4, 3, seed))
        constructor.update(uploads(upload), round)
        tables.append(constructor.broadcast()["values"])
    assert torch.equal(tables[0], tables[1])
    assert not torch.equal(tables[0], tables[2])
    assert not torch.equal(tables[0], tables[3])


def test_global_stream_is_untouched(upload):
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    build().update(uploads(upload), 0)
    assert torch.equal(torch.rand(3), expected)


def test_trains_inside_no_grad(upload):
    constructor = build()
    with torch.no_grad():
        constructor.update(uploads(upload), 0)
    other = build()
    other.update(uploads(upload), 0)
    assert torch.equal(constructor.broadcast()["values"], other.broadcast()["values"])


def test_divergence_is_reported(upload):
    with pytest.raises(FloatingPointError, match="diverged"):
        build(lr=1e30, epochs=20).update(uploads(upload), 2)


def test_unknown_choices_are_named():
    with pytest.raises(ValueError, match="margin is 'largest'; choose max_pair"):
        build(margin="largest")
    for name in ("epochs", "batch_size", "lr", "max_margin"):
        with pytest.raises(ValueError, match=name):
            build(**{name: 0})
