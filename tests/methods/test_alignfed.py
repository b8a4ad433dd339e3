import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fedsaf.core.types import ServerContext
from fedsaf.losses.schedules import Geometric, scheduled_weight
from fedsaf.tracking.recorder import Recorder
from tests.federation.harness import TINY, make_job, run_job, tensors
from tests.methods.steps import array, config_of, method_of, stand_in, step

LABELS = [0, 0, 1, 3, 3, 3]
WORDS = (*TINY, "method=alignfed")


def started(*words):
    """The method, and a client that has been sent the targets."""
    method, client = method_of(*WORDS, *words), stand_in(feature_dim=5)
    channel = method.channels["prototypes"]
    channel.aggregator.prepare(ServerContext(4, 5, seed=0))
    channel.client.receive(client, channel.aggregator.broadcast())
    return method, client


def test_schedule_by_hand():
    """20 (2/20)^(t/T): halfway sqrt(20 * 2) = 6.3246; the last of four rounds is 20 / 10^0.75 = 3.5566."""
    weights = [scheduled_weight(Geometric(0.1), 20.0, t, 4) for t in range(5)]
    assert weights == pytest.approx([20.0, 11.2468, 6.3246, 3.5566, 2.0], abs=1e-4)
    assert scheduled_weight(Geometric(0.1), 0.0, 2, 4) == 0
    with pytest.raises(ValueError, match="final_share"):
        Geometric(0.0)


def contrast(view, table, axis):
    """The loss of both axes in NumPy, from the cosines s_jc with tau = 1."""
    z, y = array(view.z), view.y.numpy()
    s = z / np.linalg.norm(z, axis=1, keepdims=True) @ (table / np.linalg.norm(table, axis=1, keepdims=True)).T
    if axis == "class":
        return np.mean([np.log(np.exp(s[j]).sum()) - s[j, c] for j, c in enumerate(y)])
    own = [-np.mean([s[j, c] - np.log(np.exp(s[:, c]).sum()) for j in np.flatnonzero(y == c)]) for c in np.unique(y)]
    return sum(own) / len(table)


@pytest.mark.parametrize(("protocol", "axis"), [("sound", "class"), ("paper", "class"), ("public", "batch")])
@pytest.mark.parametrize("labels", [LABELS, [2, 2, 2]], ids=["mixed", "one class"])
def test_client_loss_by_round(protocol, axis, labels):
    """Register entry D12 decides the axis; the weight is that of the round."""
    method, client = started(f"protocol={protocol}")
    for t, weight in ((0, 20.0), (2, 6.324555)):
        view = step(client, labels, round=t)
        total, values = method.objective(view)
        expected = contrast(view, array(client.received["prototypes"].values), axis)
        assert values["instance_alignment"].item() == pytest.approx(expected, rel=1e-5)
        assert total.item() == pytest.approx(values["cross_entropy"].item() + weight * expected, rel=1e-5)
        assert values.keys() == {"cross_entropy", "instance_alignment"}


def test_a_structural_loss_replaces_the_contrast_alone():
    """FedSAF Fig. 8: targets and shared head stay, the loss is that of its file at both levels, with its weights."""
    own, other = (config_of(*WORDS, *more) for more in ([], ["alignment=rcsa"]))
    plain = config_of(*TINY, "method=prototype", "alignment=rcsa")
    assert other["alignment"] == plain["alignment"]
    assert other["alignment"]["weight_schedule"] == "constant"
    assert other | {"alignment": None} == own | {"alignment": None}


def test_what_travels(tmp_path):
    """V once; the head, C (d + 1) = 68 numbers, both ways; no class mean."""
    job = make_job([*WORDS, "rounds=2"], tmp_path)
    run_job(job)
    rows = list(Recorder(tmp_path).rows())
    assert [row["upload_bytes"]["total"] for row in rows] == [0, 4 * 68 * 4, 4 * 68 * 4]
    assert [row["download_bytes"]["total"] for row in rows] == [0, 4 * 68 * 4, 4 * 68 * 4]
    assert job.about()["setup_bytes"] == 4 * 4 * 16 * 4
    aggregator = job.method.channels["prototypes"].aggregator
    aggregator.prepare(ServerContext(4, 16, seed=job.loop.seed))
    assert torch.equal(load_file(tmp_path / "prototypes.safetensors")["values"], aggregator.broadcast()["values"])


def test_the_head_is_shared_and_the_extractor_is_not(tmp_path):
    """After the run every client's stored head differs from the shared one only by its own last training."""
    job = make_job([*WORDS, "rounds=1"], tmp_path)
    run_job(job)
    counts = np.array([len(part) for part in job.data.record.train])
    states = tensors(tmp_path)
    heads = np.stack([states[f"client {i}"]["model.head.weight"].double().numpy() for i in range(4)])
    shared = load_file(tmp_path / "head.safetensors")["weight"].double().numpy()
    np.testing.assert_allclose(shared, np.tensordot(counts / counts.sum(), heads, 1), atol=1e-6)


def test_heads_of_two_shapes_are_refused(tmp_path):
    words = [word for word in WORDS if not word.startswith("model_group")]
    with pytest.raises(ValueError, match="averages classifiers"):
        make_job([*words, "model_group=res34_htc4", "dataset.image_size=32"], tmp_path)
