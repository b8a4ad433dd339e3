"""The frame holds what the recorder wrote, one row per run, round and rule, and says what it left out."""

import shutil

import pytest

import fedsaf
from fedsaf.reproduction.comparable import changes_nothing, comparable
from fedsaf.reproduction.frame import cell_of, collect
from tests.reproduction.recorded import CONFIG, record_run


def test_a_row_per_run_round_and_rule(tmp_path):
    record_run(tmp_path / "a", 60, 40, "nearest_prototype", diagnostics={"effective_dimension": 3.5}, rounds=3)
    record_run(tmp_path / "b", 70, seed=1, rounds=3)
    frame = fedsaf.runs(tmp_path)
    assert frame.groupby(["run", "predictor"]).size().to_dict() == {
        ("a", "classifier"): 3,
        ("a", "nearest_prototype"): 3,
        ("b", "classifier"): 3,
    }
    row = frame.query("run == 'a' and round == 2 and reported").squeeze()
    assert (row.predictor, row.pooled, row.client_mean) == ("nearest_prototype", 0.4, 0.4)
    assert (row.upload_bytes, row.download_bytes, row.seconds, row["seconds.client"]) == (2 * 2**20, 3 * 2**20, 20, 16)
    assert row["diagnostics.effective_dimension"] == 3.5
    assert (row.dataset, row.method, row.seed, row["partition.alpha"]) == ("cifar10", "fedsaf_gcsa", 0, 0.1)
    assert frame.query("round == 3").pooled.isna().all()  # no evaluation
    assert frame.query("run == 'b'").reported.all()


def test_runs_that_differ_in_the_seed_are_one_cell(tmp_path):
    for number, changes in enumerate(({}, {"seed": 1}, {"diagnostics_every": 1}, {"rounds": 299})):
        record_run(tmp_path / str(number), **changes)
    cells = fedsaf.runs(tmp_path).groupby("run").cell.first()
    assert cells.iloc[0] == cells.iloc[1] == cells.iloc[2] != cells.iloc[3]


def test_no_runs_make_an_empty_frame_with_its_columns(tmp_path):
    frame = fedsaf.runs(tmp_path)
    assert len(frame) == 0
    assert {"run", "round", "predictor", "pooled", "method", "reported"} <= set(frame)


def test_what_does_not_count_has_one_line(tmp_path):
    record_run(tmp_path / "failed", finish=False)
    (record_run(tmp_path / "cut") / "summary.json").unlink()
    record_run(tmp_path / "good", seed=1)
    frame = fedsaf.runs(tmp_path)
    assert set(frame.run) == {"good"}
    assert frame.attrs["set_aside"] == [
        "cut: summary.json is missing: a part of the folder was deleted",
        "failed: failed: ValueError: no",
    ]


def test_several_roots_and_runs_on_validation_parts(tmp_path):
    record_run(tmp_path / "a" / "run")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    record_run(tmp_path / "b" / "tuned", validation={"folds": 4})
    assert fedsaf.runs(tmp_path / "a", tmp_path / "b").folder.nunique() == 2
    (run,) = collect([tmp_path / "b"], validated=True).runs
    assert run.folder.name == "tuned"


def test_clients_have_their_domain(tmp_path):
    (tmp_path / "run").mkdir()
    partition = '{"num_clients": 2, "client_groups": ["art", "photo"], "rule": "ByDomain"}'
    (tmp_path / "run" / "partition.json").write_text(partition)
    record_run(tmp_path / "run", rounds=2)
    (run,) = collect([tmp_path]).runs
    assert run.clients.domain.tolist() == ["art", "photo"] * 2
    assert run.clients.classifier.tolist() == [0.5, 0.45, 0.6, 0.55]


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({"seed": 1, "diagnostics_every": 1}, []),
        ({"alignment": {"proto_weight": 9.0}, "prototype": {"epochs": 3}}, []),
        ({"dataset": {"max_samples": 5000}}, ["dataset.max_samples"]),
        ({"dataset": {"path": "elsewhere"}}, []),
        ({"partition": {"seed": 7}, "optimizer": {"momentum": 0.9}}, ["optimizer.momentum", "partition.seed"]),
        ({"rounds": 3, "num_clients": 5, "eval_every": 2}, ["eval_every", "num_clients", "rounds"]),
        ({"protocol": {"last_batch": "merge"}}, ["protocol.last_batch"]),
        ({"fabric": {"precision": "bf16-mixed", "threads": 2}}, ["fabric.precision"]),
        (
            {"model_group": {"architectures": ["cnn"]}, "augment": {"name": "flip"}},
            ["augment.name", "model_group.architectures"],
        ),
    ],
)
def test_what_may_not_stand_side_by_side_is_named(changes, keys):
    other = {k: CONFIG.get(k, {}) | v if isinstance(v, dict) else v for k, v in changes.items()}
    assert comparable([CONFIG, CONFIG | other]) == keys
    assert comparable([CONFIG, CONFIG | other], {key.partition(".")[0] for key in keys}) == []


def test_a_frame_is_asked_like_configurations(tmp_path):
    for name, rounds in (("a", 3), ("b", 4)):
        record_run(tmp_path / name, rounds=rounds)
    assert comparable(fedsaf.runs(tmp_path)) == ["rounds"]
    assert comparable(fedsaf.runs(tmp_path).query("run == 'a'")) == []


def test_words_that_change_no_number():
    words = ("logger=none", "fabric.threads=1", "hydra.launcher.n_jobs=2", "dataset.path=x", "eval_batch_size=50")
    assert all(map(changes_nothing, words))
    assert not any(map(changes_nothing, ("fabric=default", "rounds=3", "dataset=digits", "fabric.precision=32")))
    config = CONFIG | {"eval_batch_size": 250, "dataset": CONFIG["dataset"] | {"path": None}}
    assert cell_of(config) == cell_of(config | {"eval_batch_size": 50, "dataset": config["dataset"] | {"path": "x"}})
