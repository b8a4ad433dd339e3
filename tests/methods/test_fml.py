"""FML: one step of mutual distillation by hand, in both readings of D15, and the clipped gradient."""

import numpy as np
import pytest
import torch

from fedsaf.core.types import ImageFacts, Upload
from fedsaf.losses.distillation import divergence
from fedsaf.methods.auxiliary_model import Distillation, SmallModel
from fedsaf.models.context import ModelContext
from fedsaf.models.image_group import ImageGroup
from tests.methods.numeric import softmax
from tests.methods.tiny import LR, Diagonal, Feed, context, make_client, method_of, train

W, A = np.array([0.3, -0.2]), np.array([-0.5, 0.4])
X, Y = np.array([[1.0, 2.0], [0.5, -1.5]]), np.array([1, 0])


def step(*words, x=X, epochs=1):
    method = method_of("method=fml", *words)
    client = make_client(method, [9.0, 9.0], auxiliary={"auxiliary": Diagonal([9.0, 9.0])})
    client.model.backbone.weight.data = torch.tensor(W, dtype=torch.float32)
    broadcast = {"auxiliary": {"backbone.weight": torch.tensor(A, dtype=torch.float32)}}
    result = train(method, client, Feed(x.tolist(), Y.tolist()), broadcast, epochs)
    private = client.model.backbone.weight.detach().numpy()
    return private, result.uploads["auxiliary"]["backbone.weight"].numpy(), result


def gradients(x):
    """Logits are w x, so a gradient g of the logits is mean(g x) of w; with teachers constant dKL(q||p) = p - q."""
    p, q, y = softmax(W * x), softmax(A * x), np.eye(2)[Y]
    private = 0.5 * (p - y) + 0.5 * (p - q)
    auxiliary = 0.5 * (q - y) + 0.5 * (q - p)
    return (private * x).mean(0), (auxiliary * x).mean(0)


def test_one_step_by_hand():
    private, auxiliary, result = step()
    for found, start, gradient in zip((private, auxiliary), (W, A), gradients(X), strict=True):
        np.testing.assert_allclose(found, start - LR * gradient, rtol=1e-6)
    p, q = softmax(W * X), softmax(A * X)
    assert result.losses["distillation"] == pytest.approx((q * np.log(q / p)).sum(1).mean(), rel=1e-5)
    assert result.losses["auxiliary_distillation"] == pytest.approx((p * np.log(p / q)).sum(1).mean(), rel=1e-5)


def test_public_reading_by_hand():
    """KL over entries is C = 2 times smaller; a teacher q of KL(q||p) receives q (r - sum q r), r = log q - log p."""
    p, q, y = softmax(W * X), softmax(A * X), np.eye(2)[Y]
    r = np.log(q) - np.log(p)
    to_teacher_q = q * (r - (q * r).sum(1, keepdims=True))
    to_teacher_p = p * (-r + (p * r).sum(1, keepdims=True))
    private = 0.5 * (p - y) + 0.25 * ((p - q) + to_teacher_p)
    auxiliary = 0.5 * (q - y) + 0.25 * ((q - p) + to_teacher_q)
    found = step("method.kl_reduction=elementwise_mean", "method.detach_teacher=false")
    np.testing.assert_allclose(found[0], W - LR * (private * X).mean(0), rtol=1e-5)
    np.testing.assert_allclose(found[1], A - LR * (auxiliary * X).mean(0), rtol=1e-5)


def test_each_network_is_clipped_by_itself():
    """With inputs a hundred times larger the private gradient is longer than 10; the auxiliary one has its own norm."""
    x = 100 * X
    private, auxiliary, _ = step(x=x)
    for found, start, gradient in zip((private, auxiliary), (W, A), gradients(x), strict=True):
        length = np.linalg.norm(gradient)
        np.testing.assert_allclose(found, start - LR * gradient * min(1, 10 / length), rtol=1e-5)
    lengths = [np.linalg.norm(gradient) for gradient in gradients(x)]
    assert min(lengths) > 10
    assert lengths[0] != pytest.approx(lengths[1], rel=0.01)


def test_without_distillation_the_private_model_is_local():
    """a = b = 1: cross-entropy alone, as method=local on the same data."""
    private, _, _ = step("method.a=1", "method.b=1", epochs=3)
    local = method_of("method=local")
    client = make_client(local, [0.3, -0.2])
    train(local, client, Feed(X.tolist(), Y.tolist()), {}, epochs=3)
    assert np.array_equal(private, client.model.backbone.weight.detach().numpy())


@pytest.mark.parametrize(("weighting", "expected"), [("uniform", 2.0), ("samples", 2.5)])
def test_the_server_averages_uniformly_or_by_samples(weighting, expected):
    server = method_of("method=fml", f"method.weighting={weighting}").channels["auxiliary"]
    server.aggregator.prepare(context([0.0, 0.0]))
    server.aggregator.update([Upload(i, {"w": torch.tensor([v])}, n) for i, v, n in ((0, 1.0, 1), (1, 3.0, 3))], 0)
    assert server.aggregator.broadcast()["w"].tolist() == [expected]


def test_evaluation_does_not_ask_the_companion():
    method = method_of("method=fml")
    client = make_client(method, [1.0, 1.0], auxiliary={"auxiliary": torch.nn.Identity()})
    client.eval()
    assert client(torch.ones(1, 2))[1].tolist() == [[1.0, 1.0]]
    assert client.scratch == {}


def test_divergence_is_zero_for_equal_and_positive_for_others():
    logits = torch.tensor([[1.0, -2.0, 0.5]])
    assert divergence(logits, logits + 3, "batchmean").item() == pytest.approx(0, abs=1e-6)
    other = torch.tensor([[0.0, 1.0, 0.0]])
    whole, entries = (divergence(logits, other, name).item() for name in ("batchmean", "elementwise_mean"))
    assert whole == pytest.approx(3 * entries, rel=1e-6)
    assert whole > 0


@pytest.mark.parametrize(
    ("arguments", "match"),
    [(("a", "teacher", "batchmean"), "model or auxiliary"), (("a", "model", "sum"), "batchmean")],
)
def test_unknown_choices_list_the_known_ones(arguments, match):
    with pytest.raises(ValueError, match=match):
        Distillation(*arguments, detach_teacher=True)


IMAGES = ImageFacts(1, 16, (0.5,), (0.5,), "")


def group(architectures, heads):
    return ImageGroup("g", architectures, heads, 16, "pool", False, False, False, None, "contiguous")


def test_the_auxiliary_is_the_first_architecture_and_cnn4_in_htc_groups():
    plain = SmallModel(None, None, None).build(ModelContext(group(["simple_cnn", "resnet4"], ["linear"]), 5, IMAGES), 1)
    assert (type(plain.backbone).__name__, plain.backbone.num_features, plain.feature_dim) == ("PlainCnn", 84, 16)
    htc = SmallModel(None, 4, None).build(ModelContext(group(["resnet4"], ["htc0", "htc1"]), 5, IMAGES), 1)
    assert (htc.backbone.num_features, htc.feature_dim, tuple(htc.head.weight.shape)) == (512, 4, (5, 4))
    assert (
        SmallModel(None, 99, None).build(ModelContext(group(["simple_cnn"], ["linear"]), 5, IMAGES), 0).feature_dim
        == 16
    )
