"""The class rows of the last round are kept as they were uploaded, whatever the run went through."""

import pytest
import torch
from safetensors.torch import load_file

from fedsaf.evaluation.diagnostics import effective_dimension, margins
from fedsaf.tracking.recorder import Recorder
from tests.federation.harness import LIGHT, TINY, compare, run

NAME = "uploads_prototypes.safetensors"


def test_they_are_what_the_last_round_was_diagnosed_on(straight):
    rows = load_file(straight / NAME)
    last = Recorder(straight).rows()[-1]
    assert sorted(set(rows["client"].tolist())) == last["cohort"]
    assert effective_dimension(rows["means"]) == last["diagnostics"]["effective_dimension"]
    of_round = {row["client"]: row for row in Recorder(straight).client_rows() if row["round"] == last["round"]}
    for client in last["cohort"]:
        own = rows["client"] == client
        assert own.sum() == of_round[client]["diagnostics/classes"]
        assert margins(rows["means"][own])["margin_mean"] == of_round[client]["diagnostics/margin_mean"]


def test_their_mean_is_the_global_prototype(tmp_path):
    folder = run([*TINY, *LIGHT, "rounds=1", "protocol.prototype_weighting=uniform"], tmp_path / "run")
    rows, broadcast = load_file(folder / NAME), load_file(folder / "prototypes.safetensors")
    for label, value in zip(broadcast["labels"], broadcast["values"], strict=True):
        assert torch.allclose(rows["means"][rows["labels"] == label].mean(0), value, atol=1e-5)


def test_a_kill_in_the_last_round_changes_nothing(straight, again):
    folder = again(stop_after=2)
    assert not (folder / NAME).exists()
    again(dies_at_step=2)
    assert not (folder / NAME).exists()
    compare(straight, again())
    assert (folder / NAME).read_bytes() == (straight / NAME).read_bytes()


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["method=fedavg", "model_group.architectures=[simple_cnn]"], []),
        (["method=local"], []),
        (["method=fedgh"], ["uploads_head.safetensors"]),
        (["method=feddistill"], ["uploads_class_logits.safetensors"]),
    ],
)
def test_only_channels_of_class_rows_have_a_file(words, names, tmp_path):
    folder = run([*TINY, *LIGHT, "rounds=1", *words], tmp_path / "run")
    assert [path.name for path in folder.glob("uploads_*")] == names
    assert not list(folder.glob(".*.partial"))
