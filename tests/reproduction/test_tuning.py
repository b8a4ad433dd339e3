"""Which weights are chosen, and what is written of them."""

import sys
from pathlib import Path

import pytest
import yaml

from fedsaf.core.config import ConfigError
from fedsaf.data.federated import Validation
from fedsaf.reproduction.collect import RecordedRun
from fedsaf.reproduction.composer import Composer
from fedsaf.reproduction.experiments import cells
from fedsaf.reproduction.paper import AXES
from fedsaf.reproduction.selection import requirement_of
from fedsaf.reproduction.tuning import DEFINITION, Score, chosen, score_table, scores, tuned, write_weights
from tests.reproduction.planned import made_cell
from tune import main

CONF = Path(__file__).resolve().parents[2] / "conf"


def planned(alignment, lam, gamma, seed, scale="small", stand_in=None):
    config = {
        "alignment": {"proto_weight": lam, "inst_weight": gamma},
        "seed": seed,
        "scale": scale,
        "stand_in_for": stand_in,
    }
    run = made_cell("tune", (), (), config, {"alignment": alignment, "dataset": "cifar10"})
    run.__dict__["folder"] = Path(f"{alignment}-{lam}-{gamma}-{seed}")
    return run


def recorded(run, last, best=0.99):
    summary = {"predictor": "classifier", "classifier": {"last": {"pooled": last}, "best": {"pooled": best}}}
    return RecordedRun(run.folder, run.config, run.choices, summary, [], [])


def test_the_best_mean_over_seeds_of_the_last_round_wins_and_a_pair_that_lacks_a_seed_does_not():
    runs = [planned("mse", lam, 0.1, seed) for lam in (0.1, 1.0, 10.0) for seed in (0, 1)]
    values = (0.5, 0.7, 0.65, 0.6, 0.9, None)
    results = {run.folder: recorded(run, value) for run, value in zip(runs, values, strict=True) if value is not None}
    found = scores(runs, results)
    assert [score.weights for score in found] == [(0.1, 0.1), (1.0, 0.1), (10.0, 0.1)]
    assert [score.lacking for score in found] == [0, 0, 1]
    best = chosen(found)
    assert best["mse"].weights == (1.0, 0.1)
    assert best["mse"].mean == pytest.approx(0.625)
    assert tuned(best) == {"mse": {"proto_weight": 1.0, "inst_weight": 0.1}}
    table = score_table(found)
    assert list(table.columns[4].cells) == ["", "chosen", "1 of 2 lack a result"]
    assert list(table.columns[3].cells)[1] == "62.50 ± 2.50"


def test_of_equally_good_weights_the_smaller_are_chosen_and_a_loss_without_a_result_has_none():
    found = [
        Score("gcsa", (10.0, 1.0), [0.6], 0),
        Score("gcsa", (0.1, 1.0), [0.6], 0),
        Score("rcsa", (0.1, 1.0), [], 1),
    ]
    assert {name: score.weights for name, score in chosen(found).items()} == {"gcsa": (0.1, 1.0)}


def test_written_weights_are_those_of_the_scale_for_this_loss_alone(tmp_path, monkeypatch):
    import shutil

    conf = tmp_path / "conf"
    shutil.copytree(CONF, conf)
    definition = shutil.copy(DEFINITION, tmp_path)
    best = {"gcsa": Score("gcsa", (0.25, 4.0), [0.5], 0)}
    path, defined = write_weights(best, [planned("gcsa", 0.25, 4.0, 0)], conf, Path(definition))
    before, after = (yaml.safe_load(Path(place).read_text()) for place in (DEFINITION, defined))
    assert after == before | {"small": before.get("small", {}) | {"gcsa": {"proto_weight": 0.25, "inst_weight": 4.0}}}
    assert Path(defined).read_text().startswith(DEFINITION.read_text().partition("\n\n")[0]), "comments stay"
    assert path == conf / "alignment" / "gcsa.yaml"
    monkeypatch.delenv("DATA_ROOT", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    composer = Composer(conf)

    def weights(*words):
        config = composer.compose(words)
        return tuple(config["alignment"][f"{level}_weight"] for level in LEVELS)

    assert weights("experiment=table_3", "scale=small", "method=fedsaf_gcsa") == (0.25, 4.0)
    assert weights("experiment=table_3", "scale=full", "method=fedsaf_gcsa") == (1.0, 1.0)
    assert weights("experiment=table_3", "scale=small", "method=fedsaf_mse") == (0.01, 0.1), "as before"
    given = ("alignment.proto_weight=0.0", "method=fedsaf_gcsa")
    assert weights("experiment=figure_5", "scale=small", *given) == (0.0, 4.0), "a sweep over weights has the last word"


def test_weights_chosen_under_words_of_ones_own_are_not_written(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["tune.py", "--scale", "smoke", "--write", "rounds=2"])
    with pytest.raises(SystemExit, match="weights chosen under rounds=2 are not those of the scale"):
        main()


LEVELS = ("proto", "inst")


@pytest.mark.parametrize(
    ("scale", "stand_in", "why"),
    [("smoke", None, "numbers of scale smoke"), ("small", "cifar10", "take the place of cifar10")],
)
def test_weights_that_mean_nothing_are_not_written(tmp_path, scale, stand_in, why):
    with pytest.raises(ConfigError, match=why):
        write_weights({}, [planned("gcsa", 1.0, 1.0, 0, scale, stand_in)], tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("scale", ["small", "full"])
def test_tables_know_the_weights_that_runs_have(scale):
    """What `make tune ARGS=--write` wrote in two places is the same in both."""
    for method in ("fedsaf_mse", "fedsaf_cosine", "fedsaf_gcsa", "fedsaf_rcsa"):
        config = Composer(CONF).compose(["experiment=table_3", f"scale={scale}", f"method={method}"])
        required = requirement_of({}, dict.fromkeys(AXES, "") | LABELS | {"method": LABEL[method]}, scale)
        for key in ("proto_weight", "inst_weight"):
            assert config["alignment"][key] == required[f"alignment.{key}"], method


LABELS = {"dataset": "CIFAR-10", "partition": "Dir(0.1)", "model_group": "HtFE9"}
LABEL = {f"fedsaf_{loss.lower()}": f"FedSAF-{loss}" for loss in ("MSE", "Cosine", "GCSA", "RCSA")}


def test_the_experiment_never_scores_what_tables_score_and_has_every_pair(monkeypatch, tmp_path):
    monkeypatch.delenv("DATA_ROOT", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    composer = Composer(CONF)
    for scale, words in (("small", ["dataset=cifar10"]), ("full", [])):
        config = composer.compose(["experiment=tune", f"scale={scale}", *words])
        held = Validation(**config["validation"])
        assert (held.subset, held.folds) == ((1, None) if scale == "small" else (0, 4))
    runs = cells("tune", "small", [], ["0", "1"], composer)
    found = scores(runs, {})
    assert {score.alignment for score in found} == {"mse", "cosine", "gcsa", "rcsa"}
    assert {score.lacking for score in found} == {2}
    assert len(found) == 4 * 16
