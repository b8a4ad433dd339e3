"""FedProc: its schedule, its first prototypes, its switches."""

import numpy as np
import pytest
import torch
from lightning.fabric import Fabric

from fedsaf.core.types import Upload
from fedsaf.federation.interrupt import StopRequest
from fedsaf.federation.job import rank_loop
from fedsaf.methods.averaging import travelling
from fedsaf.methods.fedproc import CrossFade, StartedMean
from fedsaf.tracking.recorder import Recorder
from tests.federation.harness import TINY, compare, lopsided, make_job, run, tensors
from tests.methods.tiny import LR, Feed, context, make_client, method_of, train

WORDS = [*TINY, "method=fedproc", "optimizer.lr=0.05"]
X, LABEL, START = np.array([1.0, 2.0]), 1, np.array([0.3, -0.2])
TABLE = np.array([[1.0, 0.5], [-0.5, 1.0]])


def fade(schedule="linear_decay", weight=1.0, horizon=None):
    return CrossFade(None, None, schedule, weight, horizon)


@pytest.mark.parametrize(
    ("objective", "shares"),
    [
        (fade(), [1.0, 0.75, 0.5, 0.25]),
        (fade("linear_growth"), [0.0, 0.25, 0.5, 0.75]),
        (fade("constant", 0.5), [0.5] * 4),
        (fade("constant", 0.0), [0.0] * 4),
        (fade(horizon=2), [1.0, 0.5, 0.0, 0.0]),
        (fade(horizon=100), [1.0, 0.99, 0.98, 0.97]),
    ],
)
def test_the_share_of_the_contrastive_term(objective, shares):
    assert [objective.share(t, 4) for t in range(4)] == pytest.approx(shares)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("linear", 1.0, None), "schedule 'linear'"),
        (("constant", 1.5, None), "1.5"),
        (("linear_decay", 1.0, 0), "horizon"),
    ],
)
def test_settings_out_of_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        fade(*arguments)


def step_by_hand(share, unit=False):
    """w - eta x (a d L_gpc / dz + (1 - a) d CE / dz), z = w x, scaled to length 1 first if ``unit``.

    s_c = cos(z, P_c), L_gpc = -s_y + log sum exp s_c, so d L_gpc / dz = (softmax(s) - onehot) d s / dz.
    """
    raw = START * X
    length = np.linalg.norm(raw)
    z = raw / length if unit else raw
    scaling = (np.eye(2) - np.outer(raw, raw) / length**2) / length if unit else np.eye(2)
    p, onehot = np.exp(z) / np.exp(z).sum(), np.eye(2)[LABEL]
    norms = np.linalg.norm(TABLE, axis=1)
    s = TABLE @ z / (norms * np.linalg.norm(z))
    q = np.exp(s) / np.exp(s).sum()
    ds = TABLE / (norms * np.linalg.norm(z))[:, None] - np.outer(s, z) / (z @ z)
    gradient = share * (q - onehot) @ ds + (1 - share) * (p - onehot)
    values = {"contrastive": -np.log(q[LABEL]), "cross_entropy": -np.log(p[LABEL])}
    return START - LR * (scaling @ gradient) * X, values


def turn(method, table, t, labels=(0, 1)):
    """One client's turn of one step, against the prototypes of some classes."""
    rows = torch.tensor(list(labels), dtype=torch.int64)
    message = {"labels": rows, "values": torch.tensor(table).float()[rows]} if labels else None
    broadcast = {"parameters": {"backbone.weight": torch.tensor(START).float()}, "prototypes": message}
    client = make_client(method, [0.0, 0.0])
    return train(method, client, Feed([X.tolist()], [LABEL]), broadcast, epochs=1, round=t), client


@pytest.mark.parametrize(("t", "share"), [(0, 1.0), (1, 0.75), (3, 0.25)])
def test_one_step_by_hand(t, share):
    result, _ = turn(method_of("method=fedproc"), TABLE, t)
    w, values = step_by_hand(share)
    np.testing.assert_allclose(result.uploads["parameters"]["backbone.weight"].numpy(), w, rtol=1e-5)
    assert result.losses["contrastive"] == pytest.approx(values["contrastive"], rel=1e-5)
    assert ("cross_entropy" in result.losses) == (share < 1)
    np.testing.assert_allclose(result.uploads["prototypes"]["values"].numpy(), [w * X], rtol=1e-5)


def test_one_step_of_the_public_code_by_hand():
    """Register entry D20: z has length 1, and after 1 of 100 rounds the contrastive term still has 0.99."""
    result, _ = turn(method_of("method=fedproc", "protocol=public"), TABLE, 1)
    w, _ = step_by_hand(0.99, unit=True)
    np.testing.assert_allclose(result.uploads["parameters"]["backbone.weight"].numpy(), w, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(result.uploads["prototypes"]["values"].numpy()), 1, rtol=1e-6)
    assert result.uploads["prototypes"]["counts"].tolist() == [1], "means are weighted by samples"


@pytest.mark.parametrize("labels", [[], [0]])
def test_without_a_prototype_cross_entropy_has_the_whole_weight(labels):
    """Before any prototype, and in a batch none of whose classes has one."""
    result, _ = turn(method_of("method=fedproc"), TABLE, t=0, labels=labels)
    assert result.losses["total"] == result.losses["cross_entropy"]
    assert result.active == {"contrastive": 0, "cross_entropy": 1}
    w, _ = step_by_hand(0.0)
    np.testing.assert_allclose(result.uploads["parameters"]["backbone.weight"].numpy(), w, rtol=1e-5)


def test_own_prototypes_replace_the_received():
    """Algorithm 1, line 18, read literally: the only own class is the positive, so the loss is log 1 = 0."""
    result, client = turn(method_of("method=fedproc", "method.targets=own"), TABLE, t=0)
    table = client.received["prototypes"]
    assert table.mask.tolist() == [False, True]
    np.testing.assert_allclose(table.values[1].numpy(), START * X, rtol=1e-6)
    assert result.losses["contrastive"] == pytest.approx(0, abs=1e-6)


def test_on_cross_entropy_alone_it_is_fedavg(tmp_path):
    words = [
        *TINY,
        "participation_ratio=0.5",
        "model_group.architectures=[resnet4]",
        "model_group=moon_cnn",
        "rounds=2",
    ]
    alone = ["method.schedule=constant", "method.weight=0"]
    fedavg = tensors(run([*words, "method=fedavg"], tmp_path / "fedavg"))["server"]
    zero = tensors(run([*words, "method=fedproc", *alone], tmp_path / "zero"))["server"]
    some = tensors(run([*words, "method=fedproc"], tmp_path / "some"))["server"]
    assert all(torch.equal(zero[name], fedavg[name]) for name in fedavg)
    assert not all(torch.equal(some[name], fedavg[name]) for name in fedavg)


def first_table(tmp_path, *words):
    """Return the job and what the server sends when round 0 of training begins."""
    job = make_job([*WORDS, *words], tmp_path / "run")
    loop = rank_loop(Fabric(accelerator="cpu", devices=1), StopRequest(insist=True), job)
    next(loop.steps())
    return job, loop.server.broadcast()["prototypes"]


def means_by_hand(job):
    """Return the mean z of each class at each client under the server's first model, NaN for none: (N, C, Q)."""
    client = job.factory.template().eval()
    means = np.full((4, 4, 16), np.nan)
    for i, loader in job.loaders(torch.device("cpu")).items():
        x, y = (torch.cat(parts) for parts in zip(*loader.clean_pass(), strict=True))
        with torch.no_grad():
            z = client.model(x)[0].double().numpy()
        for c in set(y.tolist()):
            means[i, c] = z[y.numpy() == c].mean(axis=0)
    return means


def test_everyone_uploads_once_before_round_0(tmp_path):
    job, table = first_table(tmp_path, "participation_ratio=0.5")
    means = means_by_hand(job)
    np.testing.assert_allclose(table["values"].numpy(), np.nanmean(means, axis=0), rtol=1e-4, atol=1e-6)
    pairs = int((job.data.record.train_counts > 0).sum())
    row = Recorder(tmp_path / "run").rows()[0]
    assert row["round"] == 0
    assert row["upload_bytes"] == {"total": pairs * 16 * 4, "parameters": 0, "prototypes": pairs * 16 * 4}
    assert row["download_bytes"]["total"] == 0
    assert row["num_batches"] == 0


@pytest.mark.parametrize("initial", ["exchange", "random"])
def test_a_run_continues_from_its_first_prototypes(tmp_path, initial):
    words = [*WORDS, f"method.initial={initial}", "rounds=2"]
    straight = run(words, tmp_path / "straight")
    run(words, tmp_path / "halting", stop_after=0)
    assert [row["round"] for row in Recorder(tmp_path / "halting").rows()] == [0]
    compare(straight, run(words, tmp_path / "halting"))


def started(initial, seed=0):
    server = StartedMean("uniform", initial)
    server.prepare(context([0.0, 0.0], seed=seed))
    return server


def test_random_directions_serve_until_the_first_update():
    server = started("random")
    first = server.broadcast()
    assert first["labels"].tolist() == [0, 1]
    torch.testing.assert_close(first["values"].norm(dim=1), torch.ones(2))
    assert torch.equal(first["values"], started("random").broadcast()["values"])
    assert not torch.equal(first["values"], started("random", seed=1).broadcast()["values"])
    message = {"labels": torch.tensor([1]), "values": torch.tensor([[3.0, 4.0]])}
    server.update([Upload(0, message, 5)], 0)
    assert server.broadcast()["labels"].tolist() == [1], "a class that nobody has uploaded has no prototype"
    server.update([], 1)
    assert server.broadcast()["values"].tolist() == [[3.0, 4.0]], "kept while it is absent"


def test_what_is_asked_before_round_0():
    assert [started(initial).asks_first for initial in ("exchange", "random", "none")] == [True, False, False]
    assert started("none").broadcast() is None
    with pytest.raises(ValueError, match="exchange, random or none"):
        started("zeros")


def test_public_prototypes_are_weighted_by_samples():
    message = [{"labels": torch.tensor([0]), "values": torch.tensor([[v, 0.0]])} for v in (0.0, 4.0)]
    for weighting, value in (("uniform", 2.0), ("samples", 3.0)):
        server = StartedMean(weighting, "none")
        server.prepare(context([0.0, 0.0]))
        uploads = [Upload(i, {**message[i], "counts": torch.tensor([n])}, n) for i, n in enumerate((1, 3))]
        server.update(uploads, 0)
        assert server.broadcast()["values"][0, 0].item() == value


@pytest.mark.parametrize("protocol", ["sound", "paper", "public"])
def test_the_hardest_partition(tmp_path, protocol):
    """A class nobody holds, a client with two samples, one with one class: finite, and one prototype is missing."""
    folder = run([*WORDS, f"protocol={protocol}"], tmp_path / "run", alter=lopsided)
    rows = Recorder(folder).rows()
    assert [row["round"] for row in rows] == [0, 1, 2, 3]
    assert rows[-1]["num_prototypes"] == 3
    assert rows[0]["num_prototypes"] == (0 if protocol == "public" else 3)
    assert all(torch.isfinite(tensor).all() for tensor in tensors(folder)["server"].values())


def test_bytes_of_a_round(tmp_path):
    """Model and C Q numbers down, model and |C_i| Q up."""
    folder = run([*WORDS, "rounds=1"], tmp_path / "run")
    job, row = make_job(WORDS, tmp_path / "other"), Recorder(folder).rows()[1]
    model = sum(t.numel() for t in travelling(job.factory.template().model.state_dict(), "average").values())
    pairs = int((job.data.record.train_counts > 0).sum())
    assert row["upload_bytes"]["total"] == 4 * (4 * model + pairs * 16)
    assert row["download_bytes"]["total"] == 4 * 4 * (model + 4 * 16)
