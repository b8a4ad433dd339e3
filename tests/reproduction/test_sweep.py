"""From targets to runs: which words start each, which runs are shared, what counts as done."""

import json
from pathlib import Path

import pytest

from fedsaf.assembly import build
from fedsaf.core.config import ConfigError
from fedsaf.core.identity import config_hash
from fedsaf.reproduction.composer import Composer
from fedsaf.reproduction.experiments import cells, experiments, experiments_of
from fedsaf.reproduction.launch import sweeps

CONF = Path(__file__).resolve().parents[2] / "conf"
EXPERIMENTS = sorted(path.stem for path in (CONF / "experiment").glob("*.yaml"))
TARGETS = ("table_", "figure_", "fedtgp_", "fedproc_", "structure_")
OF_PAPERS = [name for name in EXPERIMENTS if name.startswith(TARGETS)]


@pytest.fixture(scope="module")
def composer():
    return Composer(CONF)


@pytest.fixture(autouse=True)
def without_data(monkeypatch, tmp_path):
    monkeypatch.delenv("DATA_ROOT", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))


def names_of(target):
    return [experiment.name for experiment in experiments_of(target)]


def test_a_target_is_the_files_that_make_one_table_or_figure():
    assert names_of("table-1") == ["table_1"]
    assert names_of("figure-8") == ["figure_8_own", "figure_8_gcsa"]  # as the figure shows them
    assert names_of("fedtgp-k10") == ["fedtgp_k10_cap", "fedtgp_k10_epochs"]


@pytest.mark.parametrize(("target", "near"), [("table-33", "table-3"), ("figure-2", "figure-")])
def test_an_unknown_target_is_answered_with_near_ones(target, near):
    with pytest.raises(ConfigError, match=f"{target} is no target; .*{near}"):
        experiments_of(target, CONF)


def test_an_unknown_scale_is_answered(composer):
    with pytest.raises(ConfigError, match="TIER=tiny is unknown; choose one of full, small, smoke"):
        cells("table-3", "tiny", [], None, composer)


def test_a_table_has_its_product_of_cells_and_seeds(composer):
    runs = cells("table-3", "full", [], ["0", "1"], composer)
    assert len(runs) == len({run.folder for run in runs}) == 4 * 2 * 3 * 2
    assert {run.config["rounds"] for run in runs} == {300}
    assert {run.config["num_clients"] for run in runs} == {20}
    assert {run.config["batch_size"] for run in runs} == {100}
    assert all(run.config["stand_in_for"] is None for run in runs)
    assert {run.config["partition"]["alpha"] for run in runs} == {0.1, 0.5, 1.0}
    assert {run.config["model_group"]["name"] for run in runs} == {"HtFE9"}


def test_the_same_cell_of_two_tables_is_one_run(composer):
    shared = [
        {run.folder for run in cells(target, "full", [], ["0"], composer) if run.choices["method"] == "fedsaf_gcsa"}
        for target in ("table-3", "figure-6")
    ]
    assert shared[1]
    assert shared[1] < shared[0]


def test_data_that_are_asked_for_need_no_stand_in_where_others_are_missing(composer, tmp_path, monkeypatch):
    (tmp_path / "cifar100").mkdir()
    (tmp_path / "cifar100" / "train.parquet").touch()
    monkeypatch.setenv("DATA_ROOT", str(tmp_path))
    runs = cells("fedtgp-k9", "small", ["dataset=cifar100"], ["0"], composer)
    assert len(runs) == 5
    assert {(run.choices["dataset"], run.config["stand_in_for"]) for run in runs} == {("cifar100", None)}
    (run,) = cells("fedtgp-k9-whole", "small", ["dataset=digits", "method=fedtgp"], ["0"], composer)
    assert (run.choices["dataset"], run.config["stand_in_for"]) == ("digits", None)


def test_seeds_that_are_asked_for_count_where_an_experiment_has_none(composer):
    assert "seed" not in experiments()["fedtgp_k8"].sweep
    assert {run.config["seed"] for run in cells("fedtgp-k8", "full", [], None, composer)} == {0}
    assert {run.config["seed"] for run in cells("fedtgp-k8", "full", [], ["3", "4"], composer)} == {3, 4}


def test_tau_and_epochs_share_their_middle(composer):
    assert len(cells("fedtgp-k10", "full", [], ["0"], composer)) == 7


@pytest.mark.parametrize("scale", ["smoke", "small"])
def test_without_data_embedded_ones_stand_in_and_are_labelled(composer, scale):
    runs = cells("table-4", scale, [], ["0"], composer)
    assert {run.config["stand_in_for"] for run in runs} == {"pacs", "domainnet"}
    assert {run.choices["dataset"] for run in runs} == {"synthetic"}
    assert {len(run.config["dataset"]["group_names"]) for run in runs} == {4, 6}


def test_data_that_are_there_are_used(composer, monkeypatch, tmp_path):
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / "train.parquet").write_bytes(b"")
    monkeypatch.setenv("DATA_ROOT", str(tmp_path))
    names = {run.config["stand_in_for"] for run in cells("table-3", "small", [], ["0"], composer)}
    assert names == {None, "cifar100"}


def test_words_of_the_user_come_last(composer):
    assert {run.config["rounds"] for run in cells("table-9", "smoke", ["rounds=1"], None, composer)} == {1}


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("method=a,b", "method=a,b is a sweep"),
        ("rounds", "rounds is no override"),
        ("method=fedfoo", "fedfoo"),
        ("optimizer.lrr=1", "optimizer.lrr is no key of this configuration"),
    ],
)
def test_a_word_that_cannot_be_meant_is_answered(composer, word, answer):
    with pytest.raises(ConfigError, match=answer):
        cells("table-9", "smoke", [word], None, composer)


def test_a_list_is_one_value(composer):
    words = ["model_group.architectures=[cnn,resnet4]"]
    runs = cells("table-9", "smoke", words, None, composer)
    assert {tuple(run.config["model_group"]["architectures"]) for run in runs} == {("cnn", "resnet4")}


@pytest.mark.parametrize("experiment", OF_PAPERS)
def test_every_experiment_of_the_papers_has_a_paper_and_its_keys_exist(composer, experiment):
    sweep = experiments()[experiment].sweep
    for scale, place in (("full", -1), ("smoke", 0)):
        own = [f"{key}={values[place]}" for key, values in sweep.items()]
        words = [f"experiment={experiment}", f"scale={scale}", *own]
        assert composer.choices(words)["paper"] != "null"
        config = composer.compose(words)
        assert config["scale"] == scale
        assert config["rounds"] <= 3 or scale == "full"
        for part in ("dataset", "partition", "model_group", "method"):  # no key too many or too few
            build(config, part)


def test_runs_on_different_data_are_different_sweeps(composer):
    runs = cells("table-3", "smoke", [], ["0", "1"], composer)
    words = sweeps(runs)
    assert len(words) == 2
    for sweep in words:
        assert "seed=0,1" in sweep
        assert "dataset=digits" in sweep
        assert any(word.startswith("method=fedsaf_mse,fedsaf_cosine") for word in sweep)
    assert {word for sweep in words for word in sweep if word.startswith("stand_in_for")} == {
        "stand_in_for=cifar10",
        "stand_in_for=cifar100",
    }


def test_a_run_counts_as_done_only_with_the_result_of_its_own_configuration(composer, tmp_path):
    (run, *_) = cells("table-9", "smoke", [f"results_root={tmp_path}"], None, composer)
    assert not run.is_finished
    run.folder.mkdir(parents=True)
    (run.folder / "status.json").write_text('{"state": "finished"}')
    (run.folder / "summary.json").write_text(json.dumps({"config_hash": "another"}))
    assert not run.is_finished
    (run.folder / "summary.json").write_text(json.dumps({"config_hash": config_hash(run.config)}))
    assert run.is_finished
    (run.folder / "summary.json").write_text("{")
    assert not run.is_finished


def test_the_folder_is_the_one_that_the_entry_will_use(composer):
    """Composed by Hydra as the entry does, the same words have the same hash."""
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    run = cells("fedtgp-k10", "smoke", [], ["3"], composer)[-1]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        theirs = OmegaConf.to_container(compose("train", overrides=[*run.frame, *run.own]), resolve=True)
    words = {word.partition("=")[0] for word in run.frame} & {word.partition("=")[0] for word in run.own}
    assert not words
    assert config_hash(theirs) == config_hash(run.config)
