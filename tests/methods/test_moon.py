"""MOON: one step by hand, and the model that a client must find again."""

import math

import numpy as np
import pytest
import torch
from lightning.fabric import Fabric

from fedsaf.federation.interrupt import StopRequest
from fedsaf.federation.job import rank_loop
from fedsaf.federation.ranks import ClientError
from fedsaf.methods.auxiliary_model import Frozen
from fedsaf.methods.moon import ModelContrast, PreviousModel, model_contrast
from tests.federation.harness import TINY, differences, make_job, run, tensors
from tests.methods.tiny import LR, Diagonal, Feed, make_client, method_of, train

MU, TAU = 2.0, 0.5
SETTINGS = f"method.mu={MU}"
X, LABEL = np.array([1.0, 2.0]), 1
RECEIVED, PREVIOUS = np.array([0.3, -0.2]), np.array([-0.5, 0.4])
WORDS = [*TINY, "model_group.architectures=[simple_cnn]", "method=moon", "optimizer.lr=0.05"]


def cosine(a, b):
    """Return cos(a, b) and its derivative by a."""
    lengths = np.linalg.norm(a) * np.linalg.norm(b)
    return a @ b / lengths, b / lengths - (a @ b / lengths) * a / (a @ a)


def steps_by_hand(steps):
    """w <- w - eta (d CE / dz + mu d l_con / dz) x, with z = w x and q the softmax of the two cosines over tau."""
    w, values = RECEIVED, []
    for _ in range(steps):
        z = w * X
        p = np.exp(z) / np.exp(z).sum()
        towards, d_towards = cosine(z, RECEIVED * X)
        away, d_away = cosine(z, PREVIOUS * X)
        q = 1 / (1 + np.exp((away - towards) / TAU))
        values.append(-np.log(q))
        w = w - LR * (p - np.eye(2)[LABEL] + MU * (q - 1) / TAU * (d_towards - d_away)) * X
    return w, np.mean(values)


def test_two_steps_by_hand():
    method = method_of("method=moon", SETTINGS)
    previous = Frozen(Diagonal(PREVIOUS.tolist()))
    client = make_client(method, [0.0, 0.0], auxiliary={"previous_model": previous})
    broadcast = {"parameters": {"backbone.weight": torch.tensor(RECEIVED).float()}}
    result = train(method, client, Feed([X.tolist()], [LABEL]), broadcast, epochs=2)
    w, value = steps_by_hand(2)
    np.testing.assert_allclose(result.uploads["parameters"]["backbone.weight"].numpy(), w, rtol=1e-5)
    assert result.losses["model_contrast"] == pytest.approx(value, rel=1e-5)
    assert torch.equal(previous.model.backbone.weight, client.model.backbone.weight), "kept for the next participation"
    assert bool(previous.taken)


def test_equal_models_cancel():
    """First participation with prev_init=global: log 2, and no gradient."""
    generator = torch.Generator().manual_seed(0)
    z, other = torch.randn(2, 5, 3, generator=generator, dtype=torch.float64)
    z.requires_grad_()
    value = model_contrast(z, other, other, TAU)
    value.backward()
    assert value.item() == pytest.approx(math.log(2), abs=1e-12)
    assert z.grad.abs().max() < 1e-12


@pytest.mark.parametrize(("first", "received"), [("global", True), ("independent", False)])
def test_the_first_previous_model(tmp_path, first, received):
    """Register entry D19."""
    job = make_job(WORDS, tmp_path)
    callback = PreviousModel(first)
    client = job.factory.build(0)
    twin = {name: t.clone() for name, t in client.auxiliary["previous_model"].model.state_dict().items()}
    assert not torch.equal(twin["head.weight"], client.model.head.weight)
    callback.on_train_start(client, [])
    kept = client.auxiliary["previous_model"].model.state_dict()
    assert all(torch.equal(kept[n], (client.model.state_dict() if received else twin)[n]) for n in kept)
    client.auxiliary["previous_model"].take(job.factory.build(1).model)
    later = client.auxiliary["previous_model"].model.head.weight.clone()
    callback.on_train_start(client, [])
    assert torch.equal(client.auxiliary["previous_model"].model.head.weight, later), "only before the first"


def test_every_client_has_its_own_independent_twin(tmp_path):
    job = make_job(WORDS, tmp_path)
    twins = [job.factory.build(i).auxiliary["previous_model"].model.head.weight for i in (0, 1, 0)]
    assert not torch.equal(twins[0], twins[1])
    assert torch.equal(twins[0], twins[2])


def test_frozen_models_stay_in_evaluation_mode_and_learn_nothing(tmp_path):
    job = make_job([*TINY, "model_group.architectures=[resnet4]", "method=moon"], tmp_path)
    client = job.factory.build(0)
    twin = client.auxiliary["previous_model"]
    before = {name: tensor.clone() for name, tensor in twin.state_dict().items()}
    client.train()
    z, _ = twin(torch.randn(4, 1, 16, 16, generator=torch.Generator().manual_seed(0)))
    assert not z.requires_grad
    assert all(torch.equal(before[name], tensor) for name, tensor in twin.state_dict().items())
    learning = sum(len(group["params"]) for group in client.configure_optimizers().param_groups)
    assert learning == len(list(client.model.parameters()))


def test_without_weight_it_is_fedavg(tmp_path):
    words = [*TINY, "model_group.architectures=[resnet4]", "participation_ratio=0.5", "rounds=2"]
    group = ["model_group=moon_cnn", *words]
    fedavg = run([*group, "method=fedavg"], tmp_path / "fedavg")
    zero = run([*group, "method=moon", "method.mu=0"], tmp_path / "zero")
    ours, theirs = tensors(fedavg)["server"], tensors(zero)["server"]
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    for name in ("metrics.jsonl", "clients.jsonl"):
        assert (fedavg / name).read_bytes() == (zero / name).read_bytes()
    assert differences(fedavg, run([*group, "method=moon"], tmp_path / "some"))


def test_the_kept_model_is_the_clients_own_not_the_mean(tmp_path):
    folder = run([*WORDS, "rounds=1"], tmp_path / "run")
    state = tensors(folder)
    for owner in ("client 0", "client 1"):
        own, kept = (state[owner][f"{p}head.weight"] for p in ("model.", "auxiliary.previous_model.model."))
        assert torch.equal(own, kept)
        assert not torch.equal(kept, state["server"]["parameters.head.weight"])


def second_round(tmp_path, name, alter):
    job = make_job([*WORDS, "rounds=2"], tmp_path / name)
    loop = rank_loop(Fabric(accelerator="cpu", devices=1), StopRequest(insist=True), job)
    for closed in loop.steps():
        if closed == 1:
            alter(loop.pool.store[0])
    loop.round_logger.close(True)
    return loop.server.state_dict()["parameters.projection.2.weight"]


def test_the_previous_model_must_survive(tmp_path):
    previous = "auxiliary.previous_model.model."

    def start_anew(state):
        fresh = make_job(WORDS, tmp_path / "fresh").factory.build(0).export_state()
        state.update({name: tensor for name, tensor in fresh.items() if name.startswith(previous)})

    kept = second_round(tmp_path, "kept", lambda state: None)
    assert not torch.equal(kept, second_round(tmp_path, "anew", start_anew))
    with pytest.raises(ClientError, match="Missing key"):
        second_round(tmp_path, "lost", lambda state: state.pop(f"{previous}head.weight"))


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_the_temperature_must_be_positive(temperature):
    with pytest.raises(ValueError, match="temperature"):
        ModelContrast(temperature)
