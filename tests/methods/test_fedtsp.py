import numpy as np
import pytest
import torch
from omegaconf.errors import InterpolationKeyError

from fedsaf.core.types import ServerContext
from fedsaf.tracking.recorder import Recorder
from tests.federation.harness import TINY, make_job, origin, run_job
from tests.methods.steps import array, config_of, method_of, stand_in, step

LABELS = [0, 0, 1, 3, 3, 3]
WORDS = (*TINY, "method=fedtsp")
CONTEXT = ServerContext(4, 5, seed=0, class_names=("cat", "dog", "car", "cart"))


def started(*words):
    """The method, and a client that has been sent text vectors and scale."""
    method, client = method_of(*WORDS, *words), stand_in(feature_dim=5)
    channel = method.channels["prototypes"]
    channel.aggregator.prepare(CONTEXT)
    channel.client.receive(client, channel.aggregator.broadcast())
    return method, client


def log_loss(scores, labels):
    return (np.log(np.exp(scores).sum(1)) - scores[np.arange(len(labels)), labels]).mean()


@pytest.mark.parametrize("labels", [LABELS, [2, 2]], ids=["mixed", "one class"])
def test_client_loss_from_round_0_against_numpy(labels):
    """CE + 7 CE(e^s cos(z, T^c), y) with s = 1; s and T get no gradient."""
    method, client = started("prototype.log_scale=1.0")
    view, T = step(client, labels), array(client.received["prototypes"].values)
    z = array(view.z)
    cosines = z @ T.T / np.linalg.norm(z, axis=1, keepdims=True) / np.linalg.norm(T, axis=1)
    expected = log_loss(np.e * cosines, view.y.numpy())
    total, values = method.objective(view)
    assert values["text_contrast"].item() == pytest.approx(expected, rel=1e-5)
    assert total.item() == pytest.approx(log_loss(array(view.logits), view.y.numpy()) + 7 * expected, rel=1e-5)
    assert values.keys() == {"cross_entropy", "text_contrast"}
    assert not client.received["prototypes"].values.requires_grad
    assert not client.received["prototypes.scale"].requires_grad


def test_the_scale_of_the_authors_is_100():
    _, client = started()
    assert client.received["prototypes.scale"].exp().item() == pytest.approx(100, rel=1e-4)


@pytest.mark.parametrize("source", ["lexical", "random"])
def test_the_name_tells_where_the_text_vectors_come_from(source):
    assert config_of(*WORDS, f"prototype.source={source}")["name"] == f"fedtsp_{source}"


def test_other_constructors_are_refused():
    with pytest.raises(InterpolationKeyError, match=r"prototype\.source"):
        origin([*WORDS, "prototype=mean"], None)
    half, message = method_of(*WORDS).channels["prototypes"].client, {"labels": torch.tensor([0])}
    with pytest.raises(ValueError, match="prototype=text_prior"):
        half.receive(stand_in(feature_dim=5), message | {"values": torch.zeros(1, 5)})


def test_what_travels(tmp_path):
    """Up |C_i| d, down C d + 1, from the first round on."""
    job = make_job([*WORDS, "rounds=2"], tmp_path)
    run_job(job)
    rows = list(Recorder(tmp_path).rows())
    held = int((job.data.record.train_counts > 0).sum())
    assert [row["upload_bytes"]["total"] for row in rows] == [0, *[held * 16 * 4] * 2]
    assert [row["download_bytes"]["total"] for row in rows] == [0, *[4 * (4 * 16 + 1) * 4] * 2]
    assert rows[1]["active"]["text_contrast"] == rows[1]["num_batches"] > 0
    assert rows[2]["server"]["prototypes/loss"] != rows[1]["server"]["prototypes/loss"]
