import pytest
import torch
from lightning import Trainer
from torch.utils.data import DataLoader

from fedsaf.federation.local_training import LocalTraining
from tests.federation.harness import LIGHT, TINY, make_job


@pytest.fixture
def clients(tmp_path):
    job = make_job([*TINY, *LIGHT, "alignment=none"], tmp_path)
    return job, job.factory.build(0), job.factory.build(2)


def test_a_state_makes_another_module_the_same_client(clients):
    job, one, other = clients
    one.memory["note"] = torch.arange(3.0)
    state = one.export_state()
    other.bind(state, copy=True)
    assert other.memory["note"].tolist() == [0.0, 1.0, 2.0]
    x = job.data.dataset.inputs[:4].float()
    one.eval()
    other.eval()
    for a, b in zip(one(x), other(x), strict=True):
        assert torch.equal(a, b)
    assert other.export_state().keys() == state.keys()


def test_working_on_a_copy_leaves_the_state_alone_and_in_place_costs_none(clients):
    _, one, other = clients
    state = one.export_state()
    name = next(name for name in state if "weight" in name)
    before = state[name].clone()
    other.bind(state, copy=True)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1)
    assert torch.equal(state[name], before)
    other.bind(state, copy=False)
    assert other.state_dict()[name].data_ptr() == state[name].data_ptr()


@pytest.mark.parametrize("fault", ["missing", "unknown", "shape"])
def test_a_state_that_does_not_fit_is_refused(clients, fault):
    _, one, other = clients
    state = one.export_state()
    name = next(iter(state))
    if fault == "missing":
        del state[name]
    elif fault == "unknown":
        state["model.extra"] = torch.zeros(1)
    else:
        state[name] = torch.zeros(1, 2, 3)
    with pytest.raises(RuntimeError):
        other.bind(state, copy=True)


def test_the_optimiser_has_every_parameter_that_learns_once(clients):
    _, one, _ = clients
    for parameter in one.model.head.parameters():
        parameter.requires_grad_(False)
    held = [p for group in one.configure_optimizers().param_groups for p in group["params"]]
    assert {id(p) for p in held} == {id(p) for p in one.model.backbone.parameters()}
    assert len(held) == len({id(p) for p in held})


def test_a_plain_trainer_takes_the_same_steps_as_the_federated_loop(tmp_path):
    """Unchanged, with its alignment to received prototypes: same batches, same weights, to the bit."""
    job = make_job(
        [
            *(word for word in TINY if "min_samples" not in word),
            *LIGHT,
            "alignment=gcsa",
            "partition=iid",
            "protocol.shuffle=fixed",
        ],
        tmp_path,
    )
    loader = job.loaders(torch.device("cpu"))[1]
    federated, plain = job.factory.build(1), job.factory.build(1)
    prototypes = {"labels": torch.arange(4), "values": torch.randn(4, 16, generator=torch.Generator().manual_seed(0))}
    for client in (federated, plain):
        job.method.channels["prototypes"].client.receive(client, prototypes)
    training = LocalTraining(job.fabric.fabric(), {}, [], job.method.predictors, job.plan, lambda: False)
    result = training.train(1, federated, loader, {}, round=0)
    assert result.active["prototype_alignment"] > 0
    trainer = Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(plain, DataLoader(list(loader.train_pass(torch.arange(loader.num_train))), batch_size=None))
    for name, tensor in federated.state_dict().items():
        assert torch.equal(tensor, plain.state_dict()[name]), name
