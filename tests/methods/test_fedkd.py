"""FedKD: one step by hand, ranks of known spectra, and messages there and back."""

import numpy as np
import pytest
import torch
from torch import nn

from fedsaf.core.types import ServerContext, Upload
from fedsaf.methods.fedkd import CompressedMean
from fedsaf.methods.fedkd_compression import Compression, decoded, energy_rank, kernelwise_low_rank, low_rank
from tests.methods.numeric import array, cross_entropy, slopes, softmax
from tests.methods.tiny import LR, Diagonal, Feed, make_client, method_of, train

W, A, M = np.array([0.3, -0.2]), np.array([-0.5, 0.4]), np.array([[0.6, -0.3], [0.2, 0.9]])
X, Y = np.array([[1.0, 2.0], [0.5, -1.5]]), np.array([1, 0])
MENTEE_LR = 0.01


def step(*words):
    method = method_of("method=fedkd", *words)
    hidden = nn.Linear(2, 2, bias=False)
    hidden.weight.data = torch.tensor(M, dtype=torch.float32)
    client = make_client(method, [0.3, -0.2], auxiliary={"mentee": Diagonal([9.0, 9.0]), "hidden_map": hidden})
    client.learning_rates["mentee"] = method.auxiliary["mentee"].lr
    broadcast = {"mentee": {"backbone.weight": torch.tensor(A, dtype=torch.float32)}}
    train(method, client, Feed(X.tolist(), Y.tolist()), broadcast, epochs=1)
    return {
        "w": array(client.model.backbone.weight),
        "a": array(client.auxiliary["mentee"].backbone.weight),
        "m": array(client.auxiliary["hidden_map"].weight),
    }


def test_one_step_by_hand():
    """Features are the logits. With A and teachers constant each network has CE, its KL / A and one MSE / A."""
    z, s, y = W * X, A * X, np.eye(2)[Y]
    p, q = softmax(z), softmax(s)
    joint = cross_entropy(z, Y) + cross_entropy(s, Y)
    gap = z - s @ M.T  # mentor minus mapped mentee, over B d = 4 entries
    mentor = (p - y) / 2 + ((p - q) / 2 + 2 * gap / 4) / joint
    mentee = (q - y) / 2 + ((q - p) / 2 - 2 * (gap / 4) @ M) / joint
    mapping = -(2 * gap / 4).T @ s / joint
    found = step()
    np.testing.assert_allclose(found["w"], W - LR * (mentor * X).sum(0), rtol=1e-5)
    np.testing.assert_allclose(found["a"], A - MENTEE_LR * (mentee * X).sum(0), rtol=1e-5)
    np.testing.assert_allclose(found["m"], M - LR * mapping, rtol=1e-5)


def test_public_reading_by_differences():
    """Everything in the graph: the sum of both losses, with KL over entries and the hidden term twice."""

    def loss(w, a, m):
        z, s = w * X, a * X
        p, q = softmax(z), softmax(s)
        joint = cross_entropy(z, Y) + cross_entropy(s, Y)
        divergences = (q * np.log(q / p)).mean() + (p * np.log(p / q)).mean()
        return joint + (divergences + 2 * ((z - s @ m.T) ** 2).mean()) / joint

    gradient = slopes(loss, {"w": W, "a": A, "m": M})
    found = step("method.kl_reduction=elementwise_mean", "method.detach_teacher=false")
    for name, start, lr in (("w", W, LR), ("a", A, MENTEE_LR), ("m", M, LR)):
        np.testing.assert_allclose(found[name], start - lr * gradient[name], rtol=1e-5, err_msg=name)
    assert not np.allclose(found["w"], step()["w"], rtol=1e-3)


# Squares 9, 4, 1 of a total of 14: 9 is 0.643 of it, 13 is 0.929.
@pytest.mark.parametrize(("energy", "rank"), [(0.1, 1), (0.6, 1), (0.65, 2), (0.92, 2), (0.93, 3), (1.0, 3)])
def test_rank_is_the_smallest_that_holds_the_energy(energy, rank):
    assert energy_rank(torch.tensor([9.0, 4.0, 1.0]), energy) == rank


def spectrum(rows, columns, values, seed=0):
    """A matrix with these singular values."""
    rng = np.random.default_rng(seed)
    U, V = (np.linalg.qr(rng.normal(size=(n, len(values))))[0] for n in (rows, columns))
    return torch.tensor(U * values @ V.T, dtype=torch.float32)


@pytest.mark.parametrize("shape", [(12, 20), (20, 12)])
def test_factors_are_the_truncated_decomposition(shape):
    """Rank 2 of (3, 2, 1): what is lost has norm 1, the third singular value; signs of factors are free."""
    matrix = spectrum(*shape, [3.0, 2.0, 1.0])
    message = Compression("svd", 1, 1).pack({"a.weight": matrix}, {}, 0.9)
    assert {name: tuple(part.shape) for name, part in message.items()} == {
        "a.weight|U": (shape[0], 2),
        "a.weight|S": (2,),
        "a.weight|V": (2, shape[1]),
    }
    np.testing.assert_allclose(message["a.weight|S"], [3, 2], rtol=1e-6)
    back = decoded(message, "a.weight", matrix.shape)
    U, S, V = np.linalg.svd(matrix.double().numpy(), full_matrices=False)
    np.testing.assert_allclose(back, (U[:, :2] * S[:2]) @ V[:2], atol=1e-6)


def test_convolutions_are_flattened_and_what_does_not_shrink_travels_whole():
    kernel = spectrum(8, 3 * 25, [5.0, 0.1]).view(8, 3, 5, 5)
    message = Compression("svd", 1, 1).pack({"k": kernel}, {}, 0.95)
    assert sum(part.numel() for part in message.values()) == 8 + 1 + 75
    back = decoded(message, "k", kernel.shape)
    assert (back - kernel).norm().item() == pytest.approx(0.1, rel=1e-3)  # the singular value that was dropped
    # 4 x 4: rank 2 takes 2 (4 + 4 + 1) = 18 > 16 numbers; one axis and all zeros are never decomposed.
    whole = {"small": spectrum(4, 4, [1.0, 1.0]), "bias": torch.ones(9), "zero": torch.zeros(9, 9)}
    assert set(Compression("svd", 1, 1).pack(whole, {}, 0.95)) == set(whole)


def test_public_ranks_are_strict_common_and_can_vanish():
    """One rank for all kernels on the pooled energy; never the full one, and 0 if no smaller one holds the energy."""
    codec = Compression("htfllib_svd", 1, 1)
    message = codec.pack({"w": torch.randn(6, 2, 1, 1)}, {}, 0.95)
    assert message["w|S"].shape[-1] == 0
    assert decoded(message, "w", torch.Size((6, 2, 1, 1))).abs().sum() == 0
    assert kernelwise_low_rank(torch.eye(3), 0.95)[1].shape == (0,)  # 2/3 < 0.95: only the full rank would do
    kernels = torch.stack([spectrum(5, 5, [2.0, 1.5, 1.0, 0.1, 0.0], seed) for seed in range(4)]).view(2, 2, 5, 5)
    message = codec.pack({"w": kernels}, {}, 0.95)
    assert message["w|S"].shape == (2, 2, 3)
    assert sum(part.numel() for part in message.values()) == 4 * 33  # "compressed" 5 x 5 kernels of 25 numbers
    assert (decoded(message, "w", kernels.shape) - kernels).norm().item() == pytest.approx(0.2, rel=1e-3)
    # A strict inequality: energy 9/10 of squares (9, 1) needs more than rank 1, hence nothing below full.
    assert kernelwise_low_rank(torch.diag(torch.tensor([3.0, 1.0])), 0.9)[1].shape == (0,)
    assert low_rank(torch.diag(torch.tensor([3.0, 1.0] + 7 * [0.0])), 0.9)[1].tolist() == [3]


@pytest.mark.parametrize(("round", "energy"), [(0, 0.95), (150, 0.965), (300, 0.98)])
def test_energy_grows_linearly(round, energy):
    assert Compression("svd", 0.95, 0.98).energy(round, 300) == pytest.approx(energy)


def server(kind, start, energy=0.95):
    made = CompressedMean("uniform", "average", Compression(kind, energy, energy))
    made.prepare(ServerContext(2, 2, seed=0, rounds=4, initial=lambda scope: {"w": start.clone()}))
    return made


def tensors_of(aggregator):
    return aggregator._tensors(aggregator.broadcast())["w"]


@pytest.mark.parametrize("kind", ["svd", "none", "updates"])
def test_server_means_what_arrives_and_compresses_it_again(kind):
    """Rank-1 matrices on one pair of axes: their mean, and its change from the start, are rank 1 and lose nothing."""
    axis = spectrum(9, 9, [1.0])
    aggregator = server(kind, 4 * axis)
    assert torch.equal(tensors_of(aggregator), 4 * axis)  # the first download, in full
    for round, (one, two) in enumerate([(6.0, 3.0), (1.0, 3.0)]):
        base = {"w": tensors_of(aggregator)}
        messages = [aggregator.compression.pack({"w": value * axis}, base, 0.95) for value in (one, two)]
        report = aggregator.update([Upload(i, message, 1) for i, message in enumerate(messages)], round)
        assert report["kept"] == pytest.approx(1.0 if kind == "none" else 19 / 81)  # 1 (9 + 9 + 1) of 9 x 9
        np.testing.assert_allclose(tensors_of(aggregator), (one + two) / 2 * axis, atol=1e-5)


def test_without_uploads_the_message_stays():
    aggregator = server("svd", spectrum(9, 9, [1.0]))
    before = aggregator.broadcast()
    assert aggregator.update([], 0) == {}
    assert aggregator.broadcast().keys() == before.keys()


def test_updates_travel_compressed_and_the_reference_costs_nothing():
    method = method_of("method=fedkd", "method.compression=updates")
    channel = method.channels["mentee"]
    start, change = torch.randn(9, 9, generator=torch.Generator().manual_seed(1)), spectrum(9, 9, [2.0])
    aggregator = channel.aggregator
    aggregator.prepare(ServerContext(2, 2, seed=0, rounds=4, initial=lambda scope: {"w": start}))
    assert channel.num_bytes(aggregator.broadcast()) == 4 * 81
    upload = aggregator.compression.pack({"w": start + change}, {"w": start}, 0.95)
    aggregator.update([Upload(0, upload, 1)], 0)
    message = aggregator.broadcast()
    assert channel.num_bytes(message) == 4 * 19  # a change of rank 1, whatever the rank of the weights
    np.testing.assert_allclose(tensors_of(aggregator), start + change, atol=1e-5)
    with pytest.raises(KeyError, match="reference"):
        aggregator.load_state_dict({name: part for name, part in message.items() if name != "reference"})


@pytest.mark.parametrize("kind", ["svd", "updates", "htfllib_svd"])
def test_a_missing_factor_is_noticed(kind):
    start = spectrum(9, 9, [2.0, 0.1])
    aggregator = server(kind, start, 0.9)
    aggregator.update([Upload(0, aggregator.compression.pack({"w": 2 * start}, {"w": start}, 0.9), 1)], 0)
    for name in aggregator.state_dict():
        state = {key: part for key, part in aggregator.state_dict().items() if key != name}
        with pytest.raises(KeyError):
            aggregator.load_state_dict(state)


def test_choices_are_checked():
    with pytest.raises(ValueError, match="svd, updates, htfllib_svd or none"):
        Compression("pca", 0.95, 0.98)
    with pytest.raises(ValueError, match="energy_end"):
        Compression("svd", 0.95, 1.5)
    with pytest.raises(ValueError, match="weighting"):
        CompressedMean("median", "average", Compression("none", 1.0, 1.0))
