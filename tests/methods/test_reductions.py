"""Methods that must fall together, bit for bit, when what parts them is turned off; each method's own file has more."""

from __future__ import annotations

import pytest
import torch

from fedsaf.core.types import ServerContext, Upload
from fedsaf.methods.fedtgp import Trainable
from tests.federation.harness import CONF, LIGHT, TINY, run, tensors

WORDS = (*TINY, *LIGHT, "rounds=2", "dataset.num_samples=80", "partition.min_samples=4", "diagnostics_every=0")
OFF = ("alignment.proto_weight=0", "alignment.inst_weight=0", "alignment.uniformity_weight=0")


def weights(folder):
    """Return every client's model; memory and messages may differ between methods."""
    return {
        (owner, name): tensor.contiguous().numpy().tobytes()
        for owner, state in tensors(folder).items()
        for name, tensor in state.items()
        if name.startswith("model.")
    }


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    return weights(run([*WORDS, "method=local"], tmp_path_factory.mktemp("local") / "run"))


@pytest.mark.parametrize("alignment", sorted(path.stem for path in (CONF / "alignment").glob("*.yaml")))
def test_any_alignment_without_weight_is_local(alignment, local, tmp_path):
    folder = run([*WORDS, "method=prototype", f"alignment={alignment}", *OFF], tmp_path / "run")
    assert weights(folder) == local != {}


def test_with_weight_it_is_not(local, tmp_path):
    folder = run([*WORDS, "method=prototype", "alignment=gcsa"], tmp_path / "run")
    assert weights(folder).keys() == local.keys()
    assert weights(folder) != local


def trained(margin, fixed_margin=1.0):
    """Return the prototypes after a server step of FedTGP on drawn uploads."""
    server = Trainable(3, 2, 0.1, margin, 100.0, fixed_margin, network=True, send_initial=False, predict_unseen=False)
    server.prepare(ServerContext(4, 5, seed=3))
    means = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    server.update([Upload(0, {"labels": torch.arange(4), "values": means}, 9)], 0)
    return server.broadcast()["values"]


def test_fedtgp_with_a_margin_of_zero_is_scl():
    assert torch.equal(trained("fixed", 0.0), trained("none"))
    assert not torch.equal(trained("max_pair"), trained("none"))
