from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from fedsaf.core.types import ServerContext
from fedsaf.losses.arcface import arcface
from fedsaf.methods.fedktl import GeneratedPairs
from fedsaf.tracking.recorder import Recorder
from tests.federation.harness import TINY, make_job, origin, run_job, tensors
from tests.methods.steps import array, draw, method_of, stand_in, step

LABELS = [0, 0, 1, 3, 3, 3]
WORDS = (*TINY, "method=fedktl", "prototype.training.epochs=2", "prototype.generator.latent_dim=6")


def started(*words):
    """The method, and a client that has been sent the frame and has a map g to latents of width 6."""
    method, client = method_of(*WORDS, *words), stand_in()
    channel = method.channels["frame"]
    channel.aggregator.prepare(ServerContext(4, 3, seed=0))
    channel.client.receive(client, channel.aggregator.broadcast())
    with torch.random.fork_rng():
        torch.manual_seed(0)
        client.auxiliary["map"] = nn.Linear(3, 6)
    return method, client


def angular(e, y, frame, s=64.0, m=0.5):
    cosines = e @ frame.T / np.linalg.norm(e, axis=1, keepdims=True)
    rows = np.arange(len(y))
    cosines[rows, y] = np.cos(np.arccos(np.clip(cosines[rows, y], -1 + 1e-7, 1 - 1e-7)) + m)
    scores = s * cosines
    top = scores.max(1, keepdims=True)
    return (np.log(np.exp(scores - top).sum(1)) + top[:, 0] - scores[rows, y]).mean()


def test_the_frame_is_a_simplex_for_all():
    _, client = started()
    frame = client.received["frame"].values
    torch.testing.assert_close(frame @ frame.T, torch.eye(4) * 4 / 3 - 1 / 3, atol=1e-6, rtol=0)
    _, other = started()
    assert torch.equal(other.received["frame"].values, frame)


def test_two_classes_give_opposite_directions():
    aggregator = method_of(*WORDS).channels["frame"].aggregator
    aggregator.prepare(ServerContext(2, 3, seed=0))
    values = aggregator.broadcast()["values"]
    torch.testing.assert_close(values[0], -values[1])


@pytest.mark.parametrize("labels", [LABELS, [2, 2]], ids=["mixed", "one class"])
def test_client_loss_before_any_pair(labels):
    method, client = started()
    view = step(client, labels)
    total, values = method.objective(view)
    expected = angular(array(view.logits), view.y.numpy(), array(client.received["frame"].values))
    assert total.item() == pytest.approx(expected, rel=1e-4)
    assert values.keys() == {"angular_margin", "latent_regression"}
    assert not values["latent_regression"].requires_grad


def test_client_loss_with_pairs():
    """+ 50 MSE(g(f(x_G)), q_G): fewer pairs than a batch, so all are drawn and their order does not matter."""
    method, client = started()
    images, latents = draw(4, 3), draw(4, 6, seed=7)
    client.received["prototypes"] = GeneratedPairs(images, latents)
    client.model = SimpleNamespace(head=client.model.head)
    view = step(client, LABELS)
    object.__setattr__(view, "model", lambda x: (2 * x, None))
    total, values = method.objective(view)
    g = client.auxiliary["map"]
    mapped = 2 * array(images) @ array(g.weight).T + array(g.bias)
    error = ((mapped - array(latents)) ** 2).mean()
    assert values["latent_regression"].item() == pytest.approx(error, rel=1e-5)
    assert total.item() == pytest.approx(values["angular_margin"].item() + 50 * error, rel=1e-5)


def test_a_single_pair_is_left_out():
    method, client = started()
    client.received["prototypes"] = GeneratedPairs(draw(1, 3), draw(1, 6))
    assert not method.objective.terms["latent_regression"].term(step(client, LABELS)).requires_grad


def test_gradients_stay_finite_where_the_arc_cosine_has_none():
    frame = torch.eye(3)
    for e in (torch.eye(3), -torch.eye(3), torch.zeros(3, 3)):
        e.requires_grad_()
        arcface(e, torch.arange(3), frame, 64.0, 0.5).backward()
        assert e.grad.isfinite().all()


def test_uploads_are_means_of_normalised_outputs():
    half = method_of(*WORDS).channels["prototypes"].client
    outputs = torch.tensor([[3.0, 4.0, 0, 0], [0, 0, 5.0, 0], [2.0, 0, 0, 0]])

    class Client:
        num_classes = 4

        def eval(self):
            pass

        def __call__(self, x):
            return None, outputs

    message = half.send(Client(), [(None, torch.tensor([1, 1, 2]))])
    assert message["labels"].tolist() == [1, 2]
    mean = np.array([0.3, 0.4, 0.5, 0.0])  # of (.6, .8, 0, 0) and (0, 0, 1, 0)
    np.testing.assert_allclose(message["values"][0], mean / np.linalg.norm(mean), atol=1e-6)
    np.testing.assert_allclose(message["values"][1], [1, 0, 0, 0], atol=1e-6)


def test_answers_by_the_largest_cosine():
    method, client = started()
    frame = client.received["frame"].values
    assert method.predictor == "classifier"
    answers = method.predictors["classifier"](client, None, torch.cat([7 * frame, frame[2:] + 0.01]))
    assert answers.tolist() == [0, 1, 2, 3, 2, 3]


@pytest.mark.parametrize("keep", [True, False])
def test_whether_a_client_keeps_its_map(keep):
    half = method_of(*WORDS, f"method.keep_map={str(keep).lower()}").channels["map"].client
    _, client = started()
    server = {name: torch.zeros_like(value) for name, value in client.auxiliary["map"].state_dict().items()}
    half.receive(client, server)
    assert not client.auxiliary["map"].weight.any()
    half.on_train_start(client, None)
    nn.init.ones_(client.auxiliary["map"].weight)
    half.receive(client, server)
    assert bool(client.auxiliary["map"].weight.all()) is keep
    assert bool(client.auxiliary["map"].weight.any()) is keep


def test_other_constructors_are_refused():
    message = {"labels": torch.tensor([0]), "values": torch.zeros(1, 4)}
    with pytest.raises(ValueError, match="prototype=generator_prior"):
        method_of(*WORDS).channels["prototypes"].client.receive(stand_in(), message)


def test_a_run(tmp_path):
    """Once g, w (d + 1) numbers per client; each round |C_i| C up, and C (w + image) down once there are pairs."""
    job = make_job([*WORDS, "rounds=2", "dataset.image_size=16"], tmp_path)
    run_job(job)
    assert job.method.name == "fedktl_random_decoder"
    rows = list(Recorder(tmp_path).rows())
    held = int((job.data.record.train_counts > 0).sum())
    assert [row["upload_bytes"]["total"] for row in rows] == [0, *[held * 4 * 4] * 2]
    assert [row["download_bytes"]["total"] for row in rows] == [0, 0, 4 * 4 * (6 + 16 * 16) * 4]
    assert job.about()["setup_bytes"] == 4 * 6 * (16 + 1) * 4
    assert rows[1]["active"]["latent_regression"] == 0
    assert rows[2]["active"]["latent_regression"] == rows[2]["num_batches"] > 0
    assert "cross_entropy" not in rows[2]["loss"]
    assert "auxiliary.map.weight" in tensors(tmp_path)["client 0"]


def test_a_decoder_trained_on_public_images(tmp_path):
    """A folder of images that no client has; the checkpoint holds the decoder."""
    for i in range(6):
        (tmp_path / "public" / f"class{i % 2}").mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(i).integers(0, 255, (20, 20, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "public" / f"class{i % 2}" / f"{i}.png")
    words = ["prototype.generator.kind=trained_decoder", f"prototype.generator.images.path={tmp_path / 'public'}"]
    words += ["prototype.generator.epochs=1", "prototype.generator.width=4", "rounds=1", "dataset.image_size=16"]
    job = make_job([*WORDS, *words], tmp_path / "run")
    run_job(job)
    assert job.method.name == "fedktl_trained_decoder"
    assert any(name.startswith("prototypes.generator.") for name in tensors(tmp_path / "run")["server"])


def test_an_alignment_is_refused():
    with pytest.raises(ValueError, match="does not read it"):
        origin([*WORDS, "alignment=gcsa"], None)
