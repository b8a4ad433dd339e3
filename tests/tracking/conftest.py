"""Records of a made-up run whose numbers can be followed by hand."""

import os
from pathlib import Path

import pytest

import fedsaf
from fedsaf.core.types import RoundRecord

SOURCE = str(Path(fedsaf.__file__).parents[1])


def clean_environment(home, **variables):
    """Return the environment of a machine where W&B was never used."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB_", "XDG_CONFIG_HOME"))}
    return kept | {"HOME": str(home), "NETRC": str(home / "none"), "PYTHONPATH": SOURCE} | variables


def _accuracy(hits, sizes):
    shares = [h / n for h, n in zip(hits, sizes, strict=True)]
    return {"pooled": sum(hits) / sum(sizes), "client_mean": sum(shares) / len(shares)}


@pytest.fixture
def make_record():
    """Return a builder of records: client 0 has 10 test samples, client 1 has 90."""

    def build(round, hits=(5, 45), prototype_hits=None, num_clients=2):
        sizes = (10, 90)
        metrics = {
            "round": round,
            "cohort": list(range(num_clients)),
            "classifier": _accuracy(hits, sizes),
            "nearest_prototype": _accuracy(prototype_hits, sizes) if prototype_hits else None,
            "loss": {"total": 1.5 / (round + 1), "cross_entropy": 1.0},
            "active": {"cross_entropy": 4},
            "num_batches": 4,
            "upload_bytes": {"total": 320, "prototypes": 320} if round else {"total": 0},
            "download_bytes": {"total": 640, "prototypes": 640} if round else {"total": 0},
            "num_prototypes": 3,
            "server": {},
            "diagnostics": {},
            "failed_clients": [1] if round == 2 else [],
        }
        clients = [
            {"round": round, "client": i, "architecture": "cnn", "classifier": 0.5, "error": None, "loss/total": 0.25}
            for i in range(num_clients)
        ]
        timing = {
            "client": 2.0,
            "server": 0.5,
            "evaluation": 0.25,
            "data": 1.0,
            "total": 4.0,
            "device_bytes": 7 + round,
        }
        return RoundRecord(round, metrics, clients, timing)

    return build
