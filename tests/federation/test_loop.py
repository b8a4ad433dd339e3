"""The order of events, memory over many rounds, and everything that must be refused before training."""

import json

import pytest

from fedsaf.federation.checkpoint import CheckpointError
from fedsaf.federation.sampling import cohort
from fedsaf.tracking.recorder import Recorder, read_rows
from tests.federation.harness import LIGHT, TINY, compare, fresh, make_job, run, run_job


def test_every_round_is_recorded_with_its_cohort(straight):
    rows = Recorder(straight).rows()
    assert [row["round"] for row in rows] == [0, 1, 2, 3]
    assert [row["cohort"] for row in rows] == [[], *(cohort(0, t, 4, 0.5) for t in range(3))]
    assert all(row["classifier"]["pooled"] is not None for row in rows)
    assert {row["client"] for row in Recorder(straight).client_rows() if row["round"] == 2} == {0, 1, 2, 3}


def test_seeds_are_told_apart_and_zero_is_one_of_them(straight, again, words, tmp_path):
    compare(straight, again())
    other = run([*words, "seed=1"], tmp_path / "other")
    assert (other / "metrics.jsonl").read_bytes() != (straight / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize(("every", "evaluated"), [(2, [0, 2, 3]), (5, [0, 3])])
def test_evaluation_is_due_every_kth_round_and_last(straight, words, tmp_path, every, evaluated):
    folder = run([*words, f"eval_every={every}"], tmp_path / "run")
    rows = Recorder(folder).rows()
    assert [row["round"] for row in rows if row["classifier"]] == evaluated
    assert rows[-1] == Recorder(straight).rows()[-1]  # looking changes nothing


def test_more_rounds_begin_like_fewer(straight, words, tmp_path):
    """No term of this method depends on T."""
    longer = run([*words, "rounds=4", "diagnostics_every=0"], tmp_path / "run")
    ours, theirs = (read_rows(folder / "metrics.jsonl")[:4] for folder in (longer, straight))
    for row in (*ours, *theirs):
        row.pop("diagnostics")
    assert ours == theirs


@pytest.mark.slow
def test_resident_memory_does_not_creep(tmp_path):
    """200 rounds: the least peak of ten rounds up to 20 and up to 200 differs by less than 5 MiB."""
    words = [*TINY, "model_group.architectures=[simple_cnn,resnet4]", "rounds=200", "dataset.num_samples=80"]
    folder = run([*words, "partition.min_samples=4", "checkpoint_overhead=0.05"], tmp_path / "run")
    resident = {row["round"]: row["resident_bytes"] for row in read_rows(folder / "timing.jsonl")}
    early, late = ([resident[t] for t in range(end - 9, end + 1)] for end in (20, 200))
    assert min(late) - min(early) < 5 * 2**20


def test_another_partition_is_no_continuation(job, again, tmp_path):
    folder = again(stop_after=1)
    other = make_job([*TINY, *LIGHT, "participation_ratio=0.5", "partition.seed=2"], folder)
    with pytest.raises(CheckpointError, match="force=true"):
        other.checkpoint.load(other.identity)
    assert job.identity.keys() == {"config_hash", "partition_hash", "fingerprint"}


def test_records_that_do_not_reach_the_checkpoint_are_not_continued(job, again, tmp_path):
    folder = again(stop_after=2)
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(lines[:1]))
    with pytest.raises(ValueError, match="the checkpoint is at round 2"):
        run_job(fresh(job, folder))
    assert [json.loads(line)["round"] for line in (folder / "metrics.jsonl").read_text().splitlines()] == [0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["num_clients=500"], "num_clients|clients"),
        (["batch_size=1"], "batch normalisation"),
        (["dataset=imagefolder", "dataset.path=/nowhere"], "is not a folder"),
        (["optimizer.lr=-1"], "optimizer.lr is -1"),
        (["alignment.proto_weight=-1"], "alignment.proto_weight is -1"),
        (["alignment.inst_weight=nan"], "alignment.inst_weight is nan"),
        (["partition.alpha=0"], "partition.alpha is 0"),
        (["participation_ratio=1.01"], "participation_ratio is 1.01"),
        (["store=shelf"], "store is 'shelf'; choose one of memory, disk"),
        (["checkpoint_overhead=0"], "checkpoint_overhead is 0"),
        (["protocol.last_batch=keep"], "last_batch is 'keep'; choose one of merge"),
        (["protocol.initialisation=zeros"], "initialisation is 'zeros'; choose one of independent"),
        (["protocol.shuffle=never"], "choose each_epoch or fixed"),
        (["protocol.split=half"], "split='half'"),
        (["force=no"], "force is 'no'; expected true or false"),
        (["stop_on_failure=1"], "stop_on_failure is 1; expected true or false"),
        (["fabric.precision=half"], "fabric.precision is 'half'"),
        (["method=fedavg", "model_group=htfe2"], "take model_group=homogeneous"),
        (["dataset.image_size=8"], "simple_cnn"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_refused_before_anything_is_written(words, message, tmp_path):
    base = [*TINY, *LIGHT] if not any("=htfe" in word for word in words) else list(TINY)
    if "dataset=imagefolder" in words:
        base = [word for word in base if not word.startswith("dataset")]
    with pytest.raises(ValueError, match=message):
        make_job([*base, *words], tmp_path / "run")
    assert not (tmp_path / "run").exists()
