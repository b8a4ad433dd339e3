"""FedProx: FedAvg with a pull back to the received model."""

import numpy as np
import pytest
import torch

from fedsaf.methods.auxiliary_model import RECEIVED, Frozen
from fedsaf.methods.fedprox import Proximal
from tests.federation.harness import TINY, compare, differences, run
from tests.methods.tiny import LR, Diagonal, Feed, make_client, method_of, train

MU = "method.mu"


class View:
    def __init__(self, model, start):
        self.model, self.scratch = model, {RECEIVED: Frozen.copy_of(start)}


def steps_by_hand(w, x, label, mu, steps):
    """w <- w - eta (grad CE + mu (w - w_t)); z = w x, so grad CE = (softmax(z) - onehot) x."""
    w_t = w = np.array(w)
    for _ in range(steps):
        p = np.exp(w * x) / np.exp(w * x).sum()
        w = w - LR * ((p - np.eye(2)[label]) * x + mu * (w - w_t))
    return w


@pytest.mark.parametrize("mu", [0.0, 0.4])
def test_three_steps_by_hand(mu):
    method = method_of("method=fedprox", f"{MU}={mu}")
    client = make_client(method, [0.0, 0.0])
    broadcast = {"parameters": {"backbone.weight": torch.tensor([0.3, -0.2])}}
    result = train(method, client, Feed([[1.0, 2.0]], [1]), broadcast, epochs=3)
    expected = steps_by_hand([0.3, -0.2], np.array([1.0, 2.0]), 1, mu, steps=3)
    np.testing.assert_allclose(result.uploads["parameters"]["backbone.weight"].numpy(), expected, rtol=1e-6)
    assert ("proximal" in result.losses) == (mu > 0)


def test_value_and_gradient():
    """w - w_t = (1, -2): half the squared length is 2.5, the gradient the difference itself."""
    model = Diagonal([2.0, 1.0])
    value = Proximal()(View(model, Diagonal([1.0, 3.0])))
    value.backward()
    assert value.item() == 2.5
    assert model.backbone.weight.grad.tolist() == [1.0, -2.0]


def test_statistics_and_frozen_parameters_do_not_enter():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    view = View(model, model)
    model[1].running_mean += 5
    model[0].bias.requires_grad_(False)
    model[0].bias += 5
    assert Proximal()(view).item() == 0


def test_the_hook_is_needed():
    view = View(Diagonal([0.0, 0.0]), Diagonal([0.0, 0.0]))
    view.scratch = {}
    with pytest.raises(KeyError, match="received_model"):
        Proximal()(view)


def test_without_weight_it_is_fedavg(tmp_path):
    words = [*TINY, "model_group.architectures=[resnet4]", "participation_ratio=0.5"]
    fedavg = run([*words, "method=fedavg"], tmp_path / "fedavg")
    compare(fedavg, run([*words, "method=fedprox", f"{MU}=0"], tmp_path / "zero"))
    assert differences(fedavg, run([*words, "method=fedprox", f"{MU}=0.1"], tmp_path / "some"))
