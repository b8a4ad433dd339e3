import numpy as np
import pytest
import torch

from fedsaf.core.types import ServerContext, Upload
from fedsaf.methods.prototype import PrototypeChannel
from fedsaf.tracking.recorder import Recorder
from tests.federation.harness import TINY, make_job, run_job
from tests.methods.steps import array, config_of, method_of, stand_in, step

LABELS = [0, 0, 1, 3, 3, 3]
WORDS = (*TINY, "method=fedtgp", "feature_dim=3", "optimizer.lr=0.1")


def ready(method, num_classes=4, feature_dim=3):
    aggregator = method.channels["prototypes"].aggregator
    aggregator.prepare(ServerContext(num_classes, feature_dim, seed=0))
    return aggregator


def upload(labels, seed=0):
    means = torch.randn(len(labels), 3, generator=torch.Generator().manual_seed(seed))
    return Upload(0, {"labels": torch.tensor(labels), "values": means}, 10)


def received(method, labels):
    """A client that has been sent the prototypes after one upload of these labels."""
    client, aggregator = stand_in(), ready(method)
    aggregator.update([upload(labels)], 0)
    method.channels["prototypes"].client.receive(client, aggregator.broadcast())
    return client


def cross_entropy(view):
    scores = array(view.logits)
    return (np.log(np.exp(scores).sum(1)) - scores[np.arange(len(view.y)), view.y.numpy()]).mean()


def test_client_loss_of_the_paper():
    """CE + 0.1 * mean over the classes of the batch of the distance of its mean to the prototype."""
    method = method_of(*WORDS)
    client = received(method, [0, 1, 2, 3])
    view, table = step(client, LABELS), array(client.received["prototypes"].values)
    z, y = array(view.z), np.array(LABELS)
    distances = [np.linalg.norm(z[y == c].mean(0) - table[c]) for c in (0, 1, 3)]
    total, values = method.objective(view)
    assert total.item() == pytest.approx(cross_entropy(view) + 0.1 * np.mean(distances), rel=1e-5)
    assert values.keys() == {"cross_entropy", "prototype_alignment"}


def test_client_loss_of_public_code():
    """Register entry D11: CE + 10 * mean squared error of every feature to the prototype of its class."""
    method = method_of(*WORDS, "protocol=public")
    client = received(method, [0, 1, 2, 3])
    view, table = step(client, LABELS), array(client.received["prototypes"].values)
    error = ((array(view.z) - table[LABELS]) ** 2).mean()
    total, values = method.objective(view)
    assert total.item() == pytest.approx(cross_entropy(view) + 10 * error, rel=1e-5)
    assert values.keys() == {"cross_entropy", "instance_alignment"}


def test_the_margins_differ():
    """Register entry D10: points at 0, 1 and 3 on a line; the largest distance is 3, the largest nearest one 2."""
    message = {"labels": torch.arange(3), "values": torch.tensor([[0.0, 0, 0], [1, 0, 0], [3, 0, 0]])}
    margins = {
        name: ready(method_of(*WORDS, f"protocol={name}")).update([Upload(0, message, 1)], 0)["margin"]
        for name in ("sound", "paper", "public")
    }
    assert margins == {"sound": 3.0, "paper": 3.0, "public": 2.0}


class Scaling:
    """A client whose features are its inputs times a number."""

    num_classes, feature_dim, weight = 4, 3, 1.0

    def __init__(self):
        self.scratch = {}

    def eval(self):
        pass

    def __call__(self, x):
        return self.weight * x, None


def test_public_code_uploads_the_model_before_training():
    """Register entry D2: stale means are those of the model as received, whatever training does to it."""
    collected = {}
    for name in ("paper", "public"):
        half = method_of(*WORDS, f"protocol={name}").channels["prototypes"].client
        client = Scaling()
        batches = [(torch.ones(2, 3), torch.tensor([1, 1]))]
        half.on_train_start(client, batches)
        client.weight = 5.0
        collected[name] = half.send(client, batches)["values"][0, 0].item()
    assert collected == {"paper": 5.0, "public": 1.0}


@pytest.mark.parametrize(("protocol", "answers"), [("sound", [0, 1, 3]), ("public", [0, 1, 2, 3])])
def test_which_classes_may_be_answered(protocol, answers):
    """Every trained prototype, asked for itself: class 2 was never uploaded."""
    method = method_of(*WORDS, f"protocol={protocol}")
    client = received(method, [0, 1, 3])
    table = client.received["prototypes"].values
    nearest = method.predictors["nearest_prototype"](client, table, None)
    assert sorted(set(nearest.tolist())) == answers
    assert method.predictor == "nearest_prototype"


def test_before_the_first_upload_nothing_is_answered():
    method = method_of(*WORDS)
    client, aggregator = stand_in(), ready(method)
    method.channels["prototypes"].client.receive(client, aggregator.broadcast())
    assert method.predictors["nearest_prototype"](client, torch.zeros(2, 3), None).tolist() == [-1, -1]
    total, values = method.objective(step(client, LABELS))
    assert not values["prototype_alignment"].requires_grad


def test_a_structural_loss_replaces_the_client_term_alone():
    """FedSAF Fig. 8: constructor and collection stay, the loss is that of its file at both levels."""
    own, other = (config_of(*WORDS, *more) for more in ([], ["alignment=gcsa"]))
    plain = config_of(*TINY, "method=prototype", "alignment=gcsa")
    assert other["alignment"] == plain["alignment"]
    assert other["alignment"]["inst_weight"] == 1.0
    assert other | {"alignment": None} == own | {"alignment": None}


def test_what_travels_and_what_is_recorded(tmp_path):
    job = make_job([*WORDS, "prototype.epochs=2", "rounds=2"], tmp_path)
    run_job(job)
    rows = list(Recorder(tmp_path).rows())
    held = int((job.data.record.train_counts > 0).sum())
    assert [row["upload_bytes"]["total"] for row in rows] == [0, held * 3 * 4, held * 3 * 4]
    assert [row["download_bytes"]["total"] for row in rows] == [0, 0, 4 * 4 * 3 * 4]
    assert all(row["server"]["prototypes/loss"] > 0 for row in rows[1:])
    assert rows[0]["nearest_prototype"]["pooled"] == 0


def test_the_carrier_tells_what_was_seen():
    client = stand_in()
    PrototypeChannel("prototypes", "clean").receive(
        client, {"labels": torch.tensor([1, 3]), "values": torch.ones(2, 3), "seen": torch.tensor([False, True])}
    )
    table = client.received["prototypes"]
    assert table.mask.tolist() == [False, True, False, True]
    assert table.answerable.tolist() == [False, False, False, True]
