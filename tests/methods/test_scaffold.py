"""SCAFFOLD against Algorithm 1 written out in NumPy, and what its state is for."""

import numpy as np
import pytest
import torch
from lightning.fabric import Fabric

from fedsaf.federation.interrupt import StopRequest
from fedsaf.federation.job import rank_loop
from fedsaf.federation.ranks import ClientError
from fedsaf.federation.server import Server
from fedsaf.methods.scaffold import ControlMean, ServerStep
from fedsaf.tracking.recorder import Recorder
from tests.federation.harness import TINY, make_job, run, tensors
from tests.methods.tiny import LR, Feed, context, make_client, method_of, train

START = [0.3, -0.2]
FEEDS = [([[1.0, 2.0]], 1), ([[2.0, -1.0]], 0)]
WORDS = [*TINY, "model_group.architectures=[simple_cnn]", "optimizer.lr=0.05"]


def algorithm_1(cohorts, steps, server_lr, momentum):
    """Return w, c and the c_i of two clients after these rounds; z = w x, so grad CE = (softmax(z) - onehot) x.

    With momentum the optimiser's own step comes first, from a velocity that starts at zero each round, then the
    correction. The server's sum over participants is divided by N = 2 whoever took part.
    """
    w, c, own = np.array(START), np.zeros(2), [np.zeros(2), np.zeros(2)]
    for cohort in cohorts:
        moves, changes = [], []
        for i in cohort:
            x, y, velocity = np.array(FEEDS[i][0][0]), w.copy(), np.zeros(2)
            for _ in range(steps):
                p = np.exp(y * x) / np.exp(y * x).sum()
                velocity = momentum * velocity + (p - np.eye(2)[FEEDS[i][1]]) * x
                y = y - LR * velocity - LR * (c - own[i])
            new = own[i] - c + (w - y) / (steps * LR)
            moves.append(y - w)
            changes.append(new - own[i])
            own[i] = new
        w = w + server_lr * np.mean(moves, axis=0)
        c = c + np.sum(changes, axis=0) / 2
    return w, c, own


def simulated(cohorts, steps, server_lr, momentum):
    method = method_of("method=scaffold", f"method.server_lr={server_lr}")
    server = Server(method.channels, context(START, num_clients=2))
    clients = [make_client(method, [0.0, 0.0], momentum) for _ in FEEDS]
    for t, cohort in enumerate(cohorts):
        broadcast, results = server.broadcast(), []
        for i in cohort:
            clients[i].bind(clients[i].export_state(), copy=True)
            result = train(method, clients[i], Feed(FEEDS[i][0], [FEEDS[i][1]]), broadcast, epochs=steps, round=t)
            results.append(type(result)(**{**result.__dict__, "client": i}))
        server.update(results, t)
    state = server.state_dict()
    own = [client.memory.get("control.backbone.weight", torch.zeros(2)).numpy() for client in clients]
    return state["parameters.backbone.weight"].numpy(), state["controls.backbone.weight"].numpy(), own


@pytest.mark.parametrize("cohorts", [[[0, 1]] * 3, [[0], [1], [0, 1]]])
@pytest.mark.parametrize(("server_lr", "momentum"), [(1.0, 0.0), (0.5, 0.0), (1.0, 0.9)])
def test_rounds_by_hand(cohorts, server_lr, momentum):
    ours = simulated(cohorts, 2, server_lr, momentum)
    theirs = algorithm_1(cohorts, 2, server_lr, momentum)
    for a, b in zip((*ours[:2], *ours[2]), (*theirs[:2], *theirs[2]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert np.abs(theirs[1]).max() > 0.05


def test_one_step_makes_the_control_the_gradient():
    """With K = 1 and plain SGD, w_t - y = eta (g + c - c_i), so option II gives c_i' = g."""
    method = method_of("method=scaffold")
    client = make_client(method, START)
    client.memory["control.backbone.weight"] = torch.tensor([0.7, 0.1])
    server = {"parameters": {"backbone.weight": torch.tensor(START)}, "controls": {"backbone.weight": torch.ones(2)}}
    train(method, client, Feed([[1.0, 2.0]], [1]), server, epochs=1)
    p = np.exp([0.3, -0.4]) / np.exp([0.3, -0.4]).sum()
    gradient = (p - [0, 1]) * [1, 2]
    np.testing.assert_allclose(client.memory["control.backbone.weight"], gradient, rtol=1e-5)


def test_a_client_without_a_step_keeps_its_control():
    method = method_of("method=scaffold")
    client = make_client(method, START)
    client.memory["control.backbone.weight"] = torch.tensor([0.7, 0.1])
    server = {"parameters": {"backbone.weight": torch.tensor(START)}, "controls": {"backbone.weight": torch.ones(2)}}
    result = train(method, client, Feed([[1.0, 2.0]], [1], steps_per_epoch=0), server, epochs=2)
    assert result.uploads["controls"]["backbone.weight"].tolist() == [0, 0]
    assert client.memory["control.backbone.weight"].tolist() == [torch.tensor(0.7).item(), torch.tensor(0.1).item()]
    assert result.uploads["parameters"]["backbone.weight"].tolist() == torch.tensor(START).tolist()


def parameters(folder):
    return {name: t for name, t in tensors(folder)["server"].items() if name.startswith("parameters.")}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize(("rounds", "equal"), [(1, True), (2, False)])
def test_with_zero_controls_it_is_fedavg(tmp_path, rounds, equal):
    """In the first round all controls are zero; from the second on they are not."""
    words = [*TINY, "model_group.architectures=[resnet4]", f"rounds={rounds}"]
    fedavg = run([*words, "method=fedavg"], tmp_path / "fedavg")
    samples = "method.weighting=samples"
    scaffold = run([*words, "method=scaffold", samples], tmp_path / "scaffold")
    assert same(parameters(fedavg), parameters(scaffold)) == equal


def test_it_sends_twice_what_fedavg_sends(tmp_path):
    rows = [Recorder(run([*WORDS, f"method={m}", "rounds=1"], tmp_path / m)).rows() for m in ("fedavg", "scaffold")]
    for direction in ("upload_bytes", "download_bytes"):
        assert rows[1][1][direction]["total"] == 2 * rows[0][1][direction]["total"] > 0


def test_statistics_are_averaged_but_not_controlled(tmp_path):
    folder = run([*TINY, "model_group.architectures=[resnet4]", "rounds=1", "method=scaffold"], tmp_path / "run")
    server = tensors(folder)["server"]
    statistics = {name for name in server if name.endswith(("running_mean", "running_var"))}
    assert statistics
    assert all(name.startswith("parameters.") for name in statistics)
    controlled = {name.removeprefix("controls.") for name in server if name.startswith("controls.")}
    model = make_job([*TINY, "model_group.architectures=[resnet4]", "method=scaffold"], tmp_path).factory.template()
    assert controlled == {name for name, _ in model.model.named_parameters()}


def second_round(tmp_path, name, alter):
    """Return the server's state after two rounds, client 0's state altered in between."""
    job = make_job([*WORDS, "method=scaffold", "rounds=2"], tmp_path / name)
    job.fabric.apply()
    loop = rank_loop(Fabric(accelerator="cpu", devices=1), StopRequest(insist=True), job)
    for closed in loop.steps():
        if closed == 1:
            alter(loop.pool.store[0])
    loop.round_logger.close(True)
    return loop.server.state_dict()


def controls_of(state):
    return [name for name in state if name.startswith("memory.control.")]


def test_the_client_control_must_survive(tmp_path):
    kept = second_round(tmp_path, "kept", lambda state: None)
    lost = second_round(tmp_path, "lost", lambda state: [state.pop(name) for name in controls_of(state)])
    assert not same(kept, lost)
    with pytest.raises(ClientError, match="KeyError"):
        second_round(tmp_path, "cut", lambda state: state.pop(controls_of(state)[0]))


def test_the_server_control_must_be_restored_whole():
    server = ControlMean()
    server.prepare(context(START, num_clients=2))
    with pytest.raises(ValueError, match="keys"):
        server.load_state_dict({})
    server.load_state_dict({"backbone.weight": torch.ones(2)})
    assert server.broadcast()["backbone.weight"].tolist() == [1, 1]


def test_a_server_that_stands_still_is_refused():
    with pytest.raises(ValueError, match="server_lr is 0"):
        ServerStep("uniform", "average", lr=0)
