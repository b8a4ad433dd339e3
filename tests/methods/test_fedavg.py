"""FedAvg: plain training for one client, a weighted mean for several."""

import pytest
import torch
import torch.nn.functional as F

from fedsaf.core.seeding import torch_generator
from fedsaf.core.types import Upload
from fedsaf.data.batches import Normalise, batch_bounds
from fedsaf.methods.averaging import ParameterMean, travelling
from tests.federation.harness import TINY, make_job, run_job, tensors
from tests.methods.tiny import context


def hand_written_training(job, rounds, batch_size, lr):
    """What anyone would write for one data set and one model, from the same weights and in the same orders."""
    model, data = job.factory.template().model, job.data.client(0)
    normalise = Normalise(job.data.dataset.facts.mean, job.data.dataset.facts.std)
    model.train()
    for t in range(rounds):
        order = torch_generator(0, "order", t, 0)
        for _ in range(2):
            rows = data.train[torch.randperm(len(data.train), generator=order)]
            for start, stop in batch_bounds(len(rows), batch_size, False, 2):
                x, y = normalise(data.inputs[rows[start:stop]]), data.labels[rows[start:stop]]
                model.zero_grad()
                F.cross_entropy(model(x)[1], y).backward()
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter.add_(parameter.grad, alpha=-lr)  # one rounding, as in the optimiser
    return model.state_dict()


@pytest.mark.parametrize("architecture", ["simple_cnn", "resnet4"])
def test_one_client_is_plain_training(tmp_path, architecture):
    words = [*TINY, "method=fedavg", f"model_group.architectures=[{architecture}]", "partition=iid", "rounds=2"]
    words += ["num_clients=1", "local_epochs=2", "optimizer.lr=0.05", "model_group.memory_format=contiguous"]
    words.remove("partition.min_samples=8")
    job = make_job(words, tmp_path / "run")
    run_job(job)
    state = tensors(tmp_path / "run")["server"]
    expected = hand_written_training(job, rounds=2, batch_size=8, lr=0.05)
    names = [name for name in expected if not name.endswith("num_batches_tracked")]
    assert set(state) == {f"parameters.{name}" for name in names}
    start = job.factory.template().model.state_dict()
    for name in names:
        assert torch.equal(state[f"parameters.{name}"], expected[name]), name
    assert any(not torch.equal(start[name], expected[name]) for name in names)


def uploads(*pairs):
    return [Upload(i, {"w": torch.tensor([value])}, samples) for i, (value, samples) in enumerate(pairs)]


def mean(weighting, *pairs):
    server = ParameterMean("all", weighting, "average")
    server.prepare(context([9.0, 9.0]))
    server.update(uploads(*pairs), 0)
    return server.broadcast()


def test_the_mean_is_weighted_by_the_samples_of_the_participants():
    """(1 * 0 + 3 * 4) / 4 = 3; uniformly (0 + 4) / 2 = 2."""
    assert mean("samples", (0.0, 1), (4.0, 3))["w"].item() == 3.0
    assert mean("uniform", (0.0, 1), (4.0, 3))["w"].item() == 2.0


def test_without_participants_the_model_stays():
    assert mean("samples")["backbone.weight"].tolist() == [9.0, 9.0]


@pytest.mark.parametrize(("buffers", "travel"), [("average", True), ("ignore", False)])
def test_which_statistics_travel(buffers, travel):
    """Register entry D5; the step counter never does."""
    state = torch.nn.BatchNorm1d(3).state_dict()
    names = {"weight", "bias"} | ({"running_mean", "running_var"} if travel else set())
    assert set(travelling(state, buffers)) == names
