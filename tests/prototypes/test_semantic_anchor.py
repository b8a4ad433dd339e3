import numpy as np
import pytest
import torch

from fedsaf.core.types import ServerContext
from fedsaf.methods.fedsa import SemanticAnchors

C, D = 4, 3


def build(variant="ema", num_classes=C, feature_dim=D, seed=5, **changes):
    settings = {"decay": 0.75, "epochs": 1, "batch_size": 100, "lr": 0.1} | changes
    constructor = SemanticAnchors(variant, **settings)
    constructor.prepare(ServerContext(num_classes, feature_dim, seed))
    return constructor


def uploads(upload):
    return [
        upload(0, {0: ([1.0, 0.0, 0.5], 4), 1: ([0.0, 2.0, 0.0], 2)}, d=3),
        upload(1, {0: ([3.0, 1.0, 0.0], 1), 3: ([-1.0, 1.0, 1.0], 7)}, d=3),
    ]


def numpy_state(constructor):
    return {name: tensor.double().numpy() for name, tensor in constructor.state_dict().items() if name != "seen"}


def projected(state):
    """Proj(G) in NumPy: linear, standardise each column over the classes, rectify; twice."""
    A = state["inputs"]
    for linear, norm in (("0", "1"), ("3", "4")):
        A = A @ state[f"projection.{linear}.weight"].T + state[f"projection.{linear}.bias"]
        A = (A - A.mean(0)) / np.sqrt(A.var(0) + 1e-5)
        A = np.maximum(A * state[f"projection.{norm}.weight"] + state[f"projection.{norm}.bias"], 0)
    return A


def loss_of(state, means, labels, margin):
    distances = np.linalg.norm(means[:, None] - projected(state)[None], axis=-1)
    scores = -(distances + margin * np.eye(C)[labels])
    return (np.log(np.exp(scores).sum(1)) - scores[np.arange(len(labels)), labels]).mean()


def test_anchors_are_the_projection_of_a_normal_table():
    constructor = build("train")
    state = numpy_state(constructor)
    np.testing.assert_allclose(constructor.broadcast()["values"], projected(state), atol=1e-5)
    assert torch.equal(build("ema").broadcast()["values"], constructor.broadcast()["values"])


def test_statistics_of_the_initial_anchors():
    """Columns standardised over 200 classes, then rectified: mean 0.40, second moment 0.5 as of a rectified normal."""
    anchors = build(num_classes=200, feature_dim=64).broadcast()["values"].double()
    assert (anchors >= 0).all()
    assert anchors.mean().item() == pytest.approx(0.3989, abs=0.02)
    assert anchors.square().mean().item() == pytest.approx(0.5, abs=0.03)
    assert (anchors.amax(dim=0) > 0).all()  # no column is dead


def test_slow_average_by_hand(upload):
    """The plain mean of class 0 is (2, .5, .25), whatever its counts; A <- .75 A + .25 mean. Class 2 stays."""
    constructor = build()
    before = constructor.broadcast()["values"]
    report = constructor.update(uploads(upload), 0)
    after = constructor.broadcast()["values"]
    for label, mean in {0: [2.0, 0.5, 0.25], 1: [0.0, 2.0, 0.0], 3: [-1.0, 1.0, 1.0]}.items():
        torch.testing.assert_close(after[label], 0.75 * before[label] + 0.25 * torch.tensor(mean))
    assert torch.equal(after[2], before[2])
    assert constructor.broadcast()["seen"].tolist() == [True, True, False, True]
    gaps = np.linalg.norm(after.numpy()[:, None] - after.numpy()[None], axis=-1) + np.diag([np.inf] * C)
    assert report["margin"] == pytest.approx(gaps.min(1).mean(), rel=1e-5)


def test_one_server_step_by_finite_differences(upload):
    """Trained anchors: every parameter moves by -lr times the slope of the loss, which NumPy takes numerically.

    Centroids (2, .5, .25), (0, 2, 0), (-1, 1, 1): squared distances 6.3125, 9.8125, 3, so the nearest are sqrt 6.3125,
    sqrt 3, sqrt 3 and the margin is their mean.
    """
    constructor = build("train")
    state = numpy_state(constructor)
    means = np.concatenate([u.message["values"].double().numpy() for u in uploads(upload)])
    labels = np.concatenate([u.message["labels"].numpy() for u in uploads(upload)])
    margin = (np.sqrt(6.3125) + 2 * np.sqrt(3)) / 3
    report = constructor.update(uploads(upload), 0)
    assert report["loss"] == pytest.approx(loss_of(state, means, labels, margin), rel=1e-5)
    trained = numpy_state(constructor)
    for name in ("inputs", "projection.3.weight", "projection.4.bias"):
        expected = state[name].copy()
        for index in np.ndindex(expected.shape):
            slope = 0.0
            for sign in (1, -1):
                moved = {**state, name: state[name].copy()}
                moved[name][index] += sign * 1e-6
                slope += sign * loss_of(moved, means, labels, margin) / 2e-6
            expected[index] -= 0.1 * slope
        np.testing.assert_allclose(trained[name], expected, atol=2e-5, err_msg=name)


def test_the_variants_differ(upload):
    """Register entry D21: the anchor of a class nobody holds moves only where the anchors are trained."""
    for variant, moves in (("ema", False), ("train", True)):
        constructor = build(variant)
        before = constructor.broadcast()["values"]
        constructor.update(uploads(upload), 0)
        assert torch.equal(constructor.broadcast()["values"][2], before[2]) is not moves


def test_decay_one_never_moves(upload):
    constructor = build(decay=1.0)
    before = constructor.broadcast()["values"]
    constructor.update(uploads(upload), 0)
    torch.testing.assert_close(constructor.broadcast()["values"], before, rtol=0, atol=0)


def test_nothing_uploaded_moves_nothing(upload):
    for variant in ("ema", "train"):
        constructor = build(variant)
        before = constructor.state_dict()
        constructor.update([upload(0, {}, d=3)], 0)
        assert all(torch.equal(before[name], value) for name, value in constructor.state_dict().items())
        assert not constructor.broadcast()["seen"].any()


def test_one_class_is_refused():
    with pytest.raises(ValueError, match="num_classes >= 2, got 1"):
        build(num_classes=1)


def test_draws_depend_on_the_seed_alone():
    torch.manual_seed(1)
    first = build().broadcast()["values"]
    torch.manual_seed(2)
    assert torch.equal(build().broadcast()["values"], first)
    assert not torch.equal(build(seed=6).broadcast()["values"], first)


def test_unknown_choices_are_named():
    with pytest.raises(ValueError, match="variant is 'fixed'; choose ema or train"):
        build("fixed")
    with pytest.raises(ValueError, match="decay"):
        build(decay=1.5)
