"""Clients that read no images: they take turns on workbenches, train, and give the same bits again."""

import csv
import random

import pytest
import torch

from tests.federation.harness import compare, make_job, run

COMMON = [
    "partition=iid",
    "rounds=3",
    "batch_size=8",
    "feature_dim=16",
    "progress=false",
    "fabric.accelerator=cpu",
    "fabric.threads=1",
    "fabric.deterministic=true",
    "logger=none",
]
VOCABULARIES = {"a": "red green", "b": "green blue", "c": "blue cat", "d": "cat red"}


@pytest.fixture(autouse=True)
def determinism_is_switched_off_again():
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def words(tmp_path):
    """Overrides for 160 labelled sentences of 1 to 12 words."""
    draw = random.Random(0)
    path = tmp_path / "sentences.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for i in range(160):
            label = "abcd"[i % 4]
            vocabulary = [*VOCABULARIES[label].split(), "the", "and"]
            writer.writerow([" ".join(draw.choices(vocabulary, k=draw.randint(1, 12))), label])
    return [*COMMON, "dataset=csv", f"dataset.path={path}", "dataset.max_length=12"]


TEXT = ["model_group=htfe6_txt", "model_group.embedding_dim=16", "num_clients=6"]
COUNTS = ["dataset.form=counts", "model_group=amazon_mlp", "num_clients=4"]


@pytest.mark.parametrize("true_lengths", ["true", "false"])
def test_a_state_makes_another_module_the_same_client_without_a_copy(words, tmp_path, true_lengths):
    job = make_job([*words, *TEXT, "method=local", f"model_group.true_lengths={true_lengths}"], tmp_path / "run")
    x = job.data.dataset.inputs[:4].long()
    for client in range(6):
        one = job.factory.build(client).eval()
        state = one.export_state()
        other = job.factory.build(client).eval()
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.zero_()
        other.bind(state, copy=False)
        assert all(other.state_dict()[name].data_ptr() == tensor.data_ptr() for name, tensor in state.items())
        assert all(torch.equal(a, b) for a, b in zip(one(x), other(x), strict=True))
        other.bind(state, copy=True)
        before = other(x)[0].detach()
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.mul_(2)
        assert not torch.allclose(other(x)[0], before), "the network reads the weights that training changes"
        assert all(torch.equal(a, b) for a, b in zip(one(x), job.factory.build(client).eval()(x), strict=True))


@pytest.mark.parametrize(
    "choice",
    [
        [*TEXT, "method=fml"],
        [*TEXT, "method=fedl2g"],
        [*TEXT, "method=fedavg", "model_group.architectures=[fasttext]"],
        [*TEXT, "alignment=gcsa", "model_group.true_lengths=true", "model_group.feature_logsoftmax=true"],
        [*COUNTS, "alignment=rcsa"],
        [*COUNTS, "method=fedmrl", "method.small_dim=8"],
    ],
    ids=lambda choice: "-".join(word.rsplit("=", 1)[1] for word in choice[1:]),
)
def test_a_run_that_was_interrupted_ends_in_the_same_bits(words, tmp_path, choice):
    choice = [*words, *choice, "checkpoint_overhead=1"]
    compare(run(choice, tmp_path / "straight"), run(choice, run(choice, tmp_path / "stopped", stop_after=1)))
