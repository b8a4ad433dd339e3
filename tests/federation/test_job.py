"""What a job refuses or announces before its first round, and when a folder counts as finished."""

import dataclasses
import json
import logging
from pathlib import Path

import pytest
import torch

from fedsaf.core.config import ConfigError
from fedsaf.run import _is_finished
from fedsaf.tracking.recorder import Recorder
from tests.federation.harness import LIGHT, TINY, make_job, run


def test_a_federation_in_which_nobody_has_a_batch_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no client has a training batch: batch_size is 1000.*drop_strict"):
        make_job([*TINY, *LIGHT, "batch_size=1000", "protocol=public"], tmp_path)


def test_a_federation_in_which_nobody_is_tested_is_refused(tmp_path):
    rest = [word for word in TINY if not word.startswith(("partition", "num_clients"))]
    with pytest.raises(ValueError, match="no client has a test sample.* the largest of 30 trains on 2 samples"):
        make_job([*rest, *LIGHT, "partition=iid", "dataset.num_samples=60", "num_clients=30"], tmp_path)


def test_a_client_without_a_batch_is_named_and_uploads_nothing(tmp_path, caplog):
    words = [*TINY, *LIGHT, "protocol=public", "partition=dirichlet", "partition.alpha=0.3", "rounds=1"]
    sizes = [facts.num_train for facts in make_job(words, tmp_path / "probe").clients.values()]
    batch = sorted(sizes)[0] + 1
    with caplog.at_level(logging.WARNING):
        folder = run([*words, f"batch_size={batch}"], tmp_path / "run")
    idle = [client for client, size in enumerate(sizes) if size < batch]
    assert f"neither train nor upload: {', '.join(map(str, idle))}" in caplog.text
    rows = [row for row in Recorder(folder).client_rows() if row["round"] == 1]
    assert [row["client"] for row in rows if row["num_batches"] == 0] == idle
    assert Recorder(folder).rows()[-1]["upload_bytes"]["total"] > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["optimizer.weight_decay=-1"], "weight_decay"),
        (["fabric.accelerator=tpu"], "fabric.accelerator is 'tpu'; choose one of auto, cpu"),
        (["method=alignfed", "dataset.num_classes=1"], "num_classes >= 2"),
    ],
)
def test_values_that_cannot_work_are_refused_before_the_first_round(words, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        make_job([*TINY, *LIGHT, *words], tmp_path)


def test_a_folder_is_finished_only_with_a_summary_of_this_configuration(tmp_path):
    assert not _is_finished(tmp_path, "abc")
    (tmp_path / "status.json").write_text(json.dumps({"state": "finished"}))
    assert not _is_finished(tmp_path, "abc")
    (tmp_path / "summary.json").write_text(json.dumps({"config_hash": "abc"}))
    assert _is_finished(tmp_path, "abc")
    with pytest.raises(ConfigError, match="another configuration"):
        _is_finished(tmp_path, "def")
    (tmp_path / "status.json").write_text("")
    assert not _is_finished(tmp_path, "abc")


def test_the_server_is_set_up_once_and_reading_it_wipes_nothing():
    job = make_job([*TINY, *LIGHT, "prototype=mean"], Path("never written"))
    aggregator = job.method.channels["prototypes"].aggregator
    asked = []
    prepare = aggregator.prepare
    aggregator.prepare = lambda context: (asked.append(context), prepare(context))
    job = dataclasses.replace(job)
    assert job.server is job.server
    next(iter(aggregator.state().values())).add_(1)  # as if it had been trained
    before = aggregator.state_dict()
    job.about()
    job.check()
    assert len(asked) == 1
    assert all(torch.equal(before[name], tensor) for name, tensor in aggregator.state_dict().items())
