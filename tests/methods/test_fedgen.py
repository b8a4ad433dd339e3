"""FedGen: a generator step by differences, what clients receive when, and which labels are drawn."""

import numpy as np
import pytest
import torch
from torch import nn

from fedsaf.core.seeding import torch_generator
from fedsaf.core.types import ServerContext, Upload
from fedsaf.methods.fedgen import GeneratorShape, GeneratorTrainer, HeadAndGenerator, part
from tests.methods.numeric import array, cross_entropy, slopes
from tests.methods.tiny import LR, Feed, make_client, method_of, train

SHAPE = GeneratorShape(noise_dim=2, hidden=3, noise="uniform")
COUNTS = torch.tensor([[3, 0, 1], [1, 0, 0]])
"""Two clients, three classes, of which nobody holds number 1."""
HEADS = [
    {"weight": torch.tensor([[1.0, 0.5], [0.0, 1.0], [-1.0, 0.3]]), "bias": torch.tensor([0.1, 0.0, -0.1])},
    {"weight": torch.tensor([[-1.0, 0.5], [2.0, 1.0], [0.5, 0.0]]), "bias": torch.tensor([0.0, 0.2, 0.0])},
]
SAMPLES = [3, 1]


def trainer(steps=1, batch_size=4, lr=0.01, weighting="samples", freeze=False, seed=5):
    made = GeneratorTrainer(SHAPE, steps, batch_size, lr, weighting, freeze)
    zeros = {"weight": torch.zeros(3, 2), "bias": torch.zeros(3)}
    made.prepare(ServerContext(3, 2, seed=seed, class_counts=COUNTS, initial=lambda scope: dict(zeros)))
    return made


def uploads():
    return [
        Upload(i, {f"head.{name}": tensor for name, tensor in head.items()}, n)
        for i, (head, n) in enumerate(zip(HEADS, SAMPLES, strict=True))
    ]


def generator_of(server):
    state = part(server.state_dict(), "generator.")
    return {name: array(tensor) for name, tensor in state.items() if not name.endswith("num_batches_tracked")}


def test_one_step_by_differences():
    """Adam's first step is lr g / (|g| + 1e-8). The loss: logits summed by samples, on batch statistics."""
    server = trainer()
    start = generator_of(server)
    stream = torch_generator(5, "generator/train", 0)
    labels = torch.multinomial(torch.tensor([4.0, 0.0, 1.0]).double(), 4, replacement=True, generator=stream).numpy()
    noise = torch.rand(4, 2, generator=stream).double().numpy()
    W, b = (sum(n / 4 * array(h[name]) for h, n in zip(HEADS, SAMPLES, strict=True)) for name in ("weight", "bias"))

    def loss(**values):
        hidden = np.concatenate([noise, np.eye(3)[labels]], 1) @ values["hidden.weight"].T + values["hidden.bias"]
        normed = (hidden - hidden.mean(0)) / np.sqrt(hidden.var(0) + 1e-5)
        active = np.maximum(normed * values["norm.weight"] + values["norm.bias"], 0)
        features = active @ values["output.weight"].T + values["output.bias"]
        return cross_entropy(features @ W.T + b, labels)

    learned = {name: value for name, value in start.items() if "running" not in name}
    gradient = slopes(loss, learned)
    assert server.update(uploads(), 0)["generator_loss"] == pytest.approx(loss(**learned), rel=1e-5)
    found = generator_of(server)
    for name in learned:
        sure = np.abs(gradient[name]) > 1e-4  # far from zero, where float32 knows the sign
        step = -0.01 * gradient[name] / (np.abs(gradient[name]) + 1e-8)
        np.testing.assert_allclose((found[name] - start[name])[sure], step[sure], rtol=1e-3, err_msg=name)
    assert np.abs(gradient["output.weight"]).max() > 1e-4
    assert not np.allclose(found["norm.running_mean"], start["norm.running_mean"])


def test_generator_is_sent_once_trained_and_frozen_ones_at_once():
    server, frozen = trainer(), trainer(freeze=True)
    assert part(server.broadcast(), "generator.") == {}
    untrained = part(frozen.broadcast(), "generator.")
    assert set(untrained) >= {"hidden.weight", "norm.running_var", "output.bias"}
    for one in (server, frozen):
        one.update(uploads(), 0)
    assert not torch.equal(part(server.broadcast(), "generator.")["output.weight"], untrained["output.weight"])
    assert torch.equal(part(frozen.broadcast(), "generator.")["output.weight"], untrained["output.weight"])
    assert torch.equal(part(frozen.broadcast(), "head.")["weight"], part(server.broadcast(), "head.")["weight"])


@pytest.mark.parametrize(("weighting", "share"), [("samples", 0.75), ("uniform", 0.5)])
def test_heads_are_averaged(weighting, share):
    server = trainer(weighting=weighting)
    server.update(uploads(), 0)
    expected = share * HEADS[0]["weight"] + (1 - share) * HEADS[1]["weight"]
    assert torch.allclose(part(server.broadcast(), "head.")["weight"], expected)


def test_one_label_per_step_and_no_upload():
    server = trainer(batch_size=1, steps=3)
    before = generator_of(server)
    assert server.update([], 0) == {}
    assert all(np.array_equal(before[name], value) for name, value in generator_of(server).items())
    assert np.isfinite(server.update(uploads()[1:], 0)["generator_loss"])
    assert np.array_equal(before["norm.running_mean"], generator_of(server)["norm.running_mean"])


def test_state_restores_strictly():
    server, other = trainer(), trainer(seed=6)
    server.update(uploads(), 0)
    other.load_state_dict(server.state_dict())
    assert all(torch.equal(value, other.broadcast()[name]) for name, value in server.broadcast().items())
    for name in server.state_dict():
        with pytest.raises(ValueError, match="GeneratorTrainer"):
            other.load_state_dict({key: value for key, value in server.state_dict().items() if key != name})


X, Y = [[1.0, 2.0], [0.5, -1.5]], [1, 0]
HEAD = {"weight": [[0.5, -0.2], [0.1, 0.4]], "bias": [0.0, 0.0]}


class Constant(nn.Module):
    """A generator of the feature (1, 2) for whatever label; notes what it was asked for."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def draw(self, labels, generator):
        self.asked += labels.tolist()
        return torch.tensor([[1.0, 2.0]]).expand(len(labels), 2)


def client_step(generator, counts, *words, epochs=1):
    method = method_of("method=fedgen", *words)
    client = make_client(method, [1.0, 1.0])
    client.model.head = nn.Linear(2, 2)
    if generator is not None:
        half = method.channels["generator"].client
        half.receive = lambda client, message: (
            HeadAndGenerator.receive(half, client, message),
            client.received.update(generator=generator),
        )
    head = {f"head.{name}": torch.tensor(value) for name, value in HEAD.items()}
    sent = {"label_counts": {"pooled": torch.tensor(counts)}, "generator": head}
    return client, train(method, client, Feed(X, Y), sent, epochs)


def test_client_term_by_hand_moves_the_head_alone():
    """All labels are 1, since nobody else holds any: the term's slope is (softmax(h) - e_1) (1, 2)^T on the head."""
    generator = Constant()
    (plain, _), (guided, result) = (client_step(g, [0, 9]) for g in (None, generator))
    weight = np.array(HEAD["weight"])
    feature = np.array([1.0, 2.0])
    p = np.exp(weight @ feature) / np.exp(weight @ feature).sum()
    moved = array(guided.model.head.weight) - array(plain.model.head.weight)
    np.testing.assert_allclose(moved, -LR * np.outer(p - [0, 1], feature), atol=1e-6)
    assert torch.equal(guided.model.backbone.weight, plain.model.backbone.weight)
    assert result.losses["generated_cross_entropy"] == pytest.approx(-np.log(p[1]), rel=1e-5)
    assert generator.asked == [1, 1]  # as many as the batch has


def test_first_round_has_no_generator_and_no_term():
    _, result = client_step(None, [1, 1])
    assert result.active["generated_cross_entropy"] == 0
    assert set(result.uploads["generator"]) == {"head.weight", "head.bias"}
    assert result.uploads["label_counts"] == {}


def test_classes_that_nobody_holds_are_never_drawn():
    generator = Constant()
    client_step(generator, [5, 0], epochs=30)
    assert set(generator.asked) == {0}


def test_received_generator_is_the_servers():
    server = trainer()
    server.update(uploads(), 0)

    class Client:
        num_classes, feature_dim, device, received = 3, 2, torch.device("cpu"), {}
        model = nn.Module()

    Client.model.head = nn.Linear(2, 3)
    Client.model.backbone = nn.Identity()
    HeadAndGenerator(SHAPE).receive(Client, server.broadcast())
    labels = torch.tensor([0, 2])
    made = Client.received["generator"].draw(labels, torch.Generator().manual_seed(0))
    assert torch.equal(made, server._generator.draw(labels, torch.Generator().manual_seed(0)))
    assert torch.equal(Client.model.head.weight, part(server.broadcast(), "head.")["weight"])


@pytest.mark.parametrize(("noise", "low"), [("uniform", True), ("normal", False)])
def test_noise_is_uniform_or_normal(noise, low):
    generator = GeneratorShape(4, 3, noise).build(2, 2)
    seen = []
    generator.forward = lambda noise, labels: seen.append(noise)
    generator.draw(torch.zeros(500, dtype=torch.int64), torch.Generator().manual_seed(0))
    assert (bool((seen[0] >= 0).all()), bool((seen[0] < 1).all())) == (low, low)
    assert seen[0].mean().item() == pytest.approx(0.5 if low else 0.0, abs=0.1)


def test_label_counts_are_set_up_once():
    channel = method_of("method=fedgen").channels["label_counts"]
    channel.aggregator.prepare(ServerContext(3, 2, seed=0, class_counts=COUNTS))
    assert channel.aggregator.broadcast()["pooled"].tolist() == [4, 0, 1]
    assert channel.num_bytes(channel.aggregator.setup_message()) == 3 * 8
    with pytest.raises(ValueError, match="class_counts"):
        channel.aggregator.prepare(ServerContext(3, 2, seed=0))


def test_choices_are_checked():
    with pytest.raises(ValueError, match="uniform or normal"):
        GeneratorShape(2, 3, "gauss")
    with pytest.raises(ValueError, match="steps"):
        GeneratorTrainer(SHAPE, 0, 1, 0.1, "samples", False)
    with pytest.raises(ValueError, match="weighting"):
        GeneratorTrainer(SHAPE, 1, 1, 0.1, "median", False)
