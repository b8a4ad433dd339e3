"""FedMRL: one step of the fused model by differences, the server's small model in the answer, the lost projector."""

import numpy as np
import pytest
import torch
from torch import nn

from fedsaf.methods.fedmrl import Projector
from fedsaf.models.split import SplitModel
from tests.methods.numeric import array, cross_entropy, slopes
from tests.methods.tiny import LR, Feed, make_client, method_of, train

X, Y = np.array([[1.0, 2.0], [0.5, -1.5]]), np.array([1, 0])
VALUES = {
    "w": np.array([0.3, -0.2]),  # private: z = w x, head the identity
    "g": np.array([[0.7, -0.4]]),  # trunk of the small model, one feature
    "h": np.array([[0.9], [-0.6]]),  # head of the small model, reads the first entry of u
    "r": np.array([[0.5, -0.1, 0.3], [0.2, 0.8, -0.7]]),  # projector, [g(x); z] -> u
    "b": np.array([0.1, -0.3]),
}
PLACES = {
    "w": "model.backbone.weight",
    "g": "auxiliary.small.backbone.weight",
    "h": "auxiliary.small.head.weight",
    "r": "auxiliary.projector.weight",
    "b": "auxiliary.projector.bias",
}


def loss(w, g, h, r, b):
    u = np.concatenate([X @ g.T, w * X], axis=1) @ r.T + b
    return cross_entropy(u, Y) + cross_entropy(u[:, :1] @ h.T, Y)


def linear(weight):
    layer = nn.Linear(*weight.shape[::-1], bias=False)
    layer.weight.data = torch.tensor(weight, dtype=torch.float32)
    layer.num_features = len(weight)
    return layer


def small(values=VALUES):
    return SplitModel(linear(values["g"]), linear(values["h"]), 1)


def client_and_method(*words):
    method = method_of("method=fedmrl", *words)
    projector = nn.Linear(3, 2)
    projector.weight.data = torch.tensor(VALUES["r"], dtype=torch.float32)
    projector.bias.data = torch.tensor(VALUES["b"], dtype=torch.float32)
    auxiliary = {"small": small(), "projector": projector}
    return make_client(method, VALUES["w"].tolist(), auxiliary=auxiliary), method


def step(*words, epochs=1):
    client, method = client_and_method(*words)
    sent = {"small": {name: tensor.clone() for name, tensor in small().state_dict().items()}}
    result = train(method, client, Feed(X.tolist(), Y.tolist()), sent, epochs)
    return client, result


def test_one_step_by_differences():
    client, result = step()
    gradient = slopes(loss, VALUES)
    for name, place in PLACES.items():
        expected = VALUES[name] - LR * gradient[name]
        np.testing.assert_allclose(array(client.state_dict()[place]), expected, atol=1e-6, err_msg=name)
    assert result.losses["total"] == pytest.approx(loss(**VALUES), rel=1e-6)
    assert set(result.uploads["small"]) == {"backbone.weight", "head.weight"}  # nothing private travels


def test_the_answer_uses_what_the_server_sends():
    client, method = client_and_method()
    fresh = small({"g": -2 * VALUES["g"], "h": VALUES["h"]}).state_dict()
    method.channels["small"].client.receive(client, dict(fresh))
    client.eval()
    u = np.concatenate([X @ (-2 * VALUES["g"]).T, VALUES["w"] * X], axis=1) @ VALUES["r"].T + VALUES["b"]
    z, logits = client(torch.tensor(X, dtype=torch.float32))
    np.testing.assert_allclose(logits.detach(), u, atol=1e-6)
    assert torch.equal(z, logits)  # the representation is u, here with the identity as head


def test_the_public_code_throws_the_trained_projector_away():
    for reset in (True, False):
        client, _ = step(f"method.reset_projector={str(reset).lower()}", epochs=3)
        same = [np.allclose(array(client.state_dict()[PLACES[name]]), VALUES[name], atol=1e-7) for name in ("r", "b")]
        assert same == [reset, reset]
        assert not np.allclose(array(client.state_dict()[PLACES["w"]]), VALUES["w"])
    # Within the round it is trained all the same: the private model ends equal.
    reset, kept = (step(f"method.reset_projector={word}", epochs=3)[0] for word in ("true", "false"))
    assert torch.equal(reset.model.backbone.weight, kept.model.backbone.weight)


def test_averaging_is_by_samples_but_uniform_in_public_code():
    weighting = {p: method_of("method=fedmrl", f"protocol={p}").channels["small"].aggregator.weighting
                 for p in ("sound", "paper", "public")}  # fmt: skip
    assert weighting == {"sound": "samples", "paper": "samples", "public": "uniform"}


def test_projector_counts_its_published_parameters():
    class Context:
        class group:
            feature_dim = 512

    assert sum(p.numel() for p in Projector(128).build(Context, 0).parameters()) == 328_192
    assert Projector(700).build(Context, 0).in_features == 1024  # never wider than the representation it nests in
    with pytest.raises(ValueError, match="small_dim is 0"):
        Projector(0)


def test_without_the_small_models_loss_its_head_does_not_move():
    client, _ = step("method.nested_weight=0")
    assert np.allclose(array(client.state_dict()[PLACES["h"]]), VALUES["h"], atol=1e-7)
    assert not np.allclose(array(client.state_dict()[PLACES["g"]]), VALUES["g"], atol=1e-4)
