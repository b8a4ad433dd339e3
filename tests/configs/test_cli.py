"""Mistakes on the command line get an answer before anything is loaded, with the nearest right word."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedsaf.cli import check_command_line, chosen_groups, words_first
from fedsaf.core.config import ConfigError

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf"


def refuse(*words):
    with pytest.raises(ConfigError) as error:
        check_command_line(words, CONF, "train")
    return str(error.value)


@pytest.mark.parametrize(
    "words",
    [
        ["alignment=rcsa", "partition=dirichlet_0.5", "-m"],
        ["-m", "alignment=none,mse,cosine,gcsa,rcsa", "seed=0,1,2"],
        ["-m", "seed=range(0,3)", "partition.alpha=0.1,0.5"],
        ["-m", "alignment=glob(*csa)"],
        ["partition=dirichlet", "partition.alpha=0.3"],
        ["partition='dirichlet_0.1'", "seed=null"],
        ["hydra.sweep.subdir=.", "fabric.devices=2"],
        ["method=fedsaf_gcsa", "alignment.proto_weight=10"],
        ["method=fedtgp", "alignment=gcsa", "prototype.margin=none"],
        ["method=alignfed", "alignment=rcsa"],
        ["method=fedsa", "prototype.variant=train"],
        ["--help"],
        ["--info", "defaults", "alignment=mine"],
        ["--cfg", "job", "experiment=table_3"],
        ["-sc", "install=bash"],
    ],
    ids=" ".join,
)
def test_right_words_pass(words):
    check_command_line(words, CONF, "train")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["partition=0.5"], "partition=dirichlet partition.alpha=0.5"),
        (["alignment=null"], "alignment=none"),
        (["alignement=rcsa"], "did you mean alignment"),
        (["partition.alhpa=1"], "did you mean partition.alpha"),
        (["alignment=rsca"], "did you mean rcsa"),
        (["model_group=htfe7"], "did you mean htfe"),
        (["-m", "model_group=htfe9,does_not_exist"], "does_not_exist is unknown"),
        (["-m", "method=local", "alignment=glob(*csa)"], "does not read it"),
        (["roundz=3"], "did you mean rounds"),
        (["partition=iid", "partition.alpha=0.1"], "partition.alpha is no key"),
        (["partition.alpha=0"], "partition.alpha is 0; expected a number > 0"),
        (["partition.alpha=-1"], "partition.alpha is -1"),
        (["partition.alpha=.nan"], "partition.alpha"),
        (["-m", "partition.alpha=0.1,-0.5"], "partition.alpha is -0.5"),
        (["participation_ratio=0"], "participation_ratio is 0"),
        (["participation_ratio=1.5"], "participation_ratio is 1.5"),
        (["participation_ratio=true"], "participation_ratio is True"),
        (["batch_size=0"], "batch_size is 0"),
        (["rounds=2.5"], "rounds is 2.5"),
        (["rounds=true"], "rounds is True"),
        (["num_clients=-3"], "num_clients is -3"),
        (["alignment.proto_weight=-1"], "alignment.proto_weight is -1"),
        (["alignment.inst_weight=nan"], "alignment.inst_weight is nan"),
        (["alignment.inst_weight=much"], "alignment.inst_weight is 'much'"),
        (["seed=one"], "seed is 'one'"),
        (["optimizer.lr=0"], "optimizer.lr is 0"),
        (["on_client_error=ignore"], "stop or skip"),
        (["method=local", "alignment=gcsa"], "does not read it"),
        (["method=local", "prototype=mean"], "does not read it"),
        (["method=local", "alignment.proto_weight=3"], "does not read it"),
        (["method=fedsaf_gcsa", "alignment=rcsa"], "its own"),
        (["method=fedsa", "prototype=mean"], "its own"),
        (["method=fedktl", "prototype=mean"], "its own"),
        (["method=fedtsp", "alignment=gcsa"], "does not read it"),
        (["method=fedavg", "alignment=gcsa"], "does not read it"),
        (["-m", "method=prototype,local", "alignment=gcsa,mse"], "does not read it"),
        (["rounds=[1,2"], "rounds"),
        (["experiment=null"], "leave experiment out"),
        (["experiment=alignments"], "add -m"),
        (["results_root=/proc/nowhere"], "results_root=/proc/nowhere"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_words_are_answered(words, expected):
    assert expected in refuse(*words)


@pytest.fixture
def mine(tmp_path):
    """A configuration folder of one's own: an alignment, two sweeps, a primary configuration, a group."""
    for name, text in {
        "alignment/mymse": "defaults: [mse]\ninst_weight: 0.5\n",
        "experiment/one": "# @package _global_\nhydra: {sweeper: {params: {seed: '0,1'}}}\n",
        "experiment/two": "# @package _global_\nhydra: {sweeper: {params: {seed: '0,1'}}}\n",
        "own": "defaults: [train, _self_]\nrounds: 2\n",
        "bare": "rounds: 2\n",
        "found": "defaults: [train, _self_]\nhydra: {searchpath: ['pkg://my_configurations']}\n",
        "extra/choice": "value: 1\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path


def test_a_folder_of_ones_own_is_searched_too(mine):
    for place in (["--config-dir", str(mine)], [f"hydra.searchpath=[file://{mine}]"]):
        check_command_line([*place, "alignment=mymse", "alignment.inst_weight=0.1"], CONF, "train")
        check_command_line([*place, "+extra=choice"], CONF, "train")
        assert "did you mean mymse" in refuse(*place, "alignment=mymsee")
        assert "did you mean choice" in refuse(*place, "+extra=choise")
        assert "add -m" in refuse(*place, "experiment=one")
    assert "mymse is unknown" in refuse("alignment=mymse")
    assert "--config-dir=nowhere is no folder" in refuse("--config-dir", "nowhere")


def test_a_package_is_searched_that_a_primary_configuration_of_ones_own_names(mine, tmp_path_factory, monkeypatch):
    package = tmp_path_factory.mktemp("packages") / "my_configurations"
    (package / "alignment").mkdir(parents=True)
    for folder in (package, package / "alignment"):
        (folder / "__init__.py").touch()
    (package / "alignment" / "packaged.yaml").write_text("defaults: [rcsa]\n")
    monkeypatch.syspath_prepend(package.parent)
    place = ["--config-dir", str(mine), "--config-name", "found"]
    check_command_line([*place, "alignment=packaged"], CONF, "train")
    assert "did you mean packaged" in refuse(*place, "alignment=packages")


def test_a_primary_configuration_of_ones_own(mine):
    place = ["--config-dir", str(mine)]
    check_command_line([*place, "-cn", "own", "seed=3"], CONF, "train")
    assert "did you mean rounds" in refuse(*place, "-cn", "own", "roundz=3")
    assert "defaults: [train, _self_]" in refuse(*place, "-cn", "bare", "rounds=3")
    assert "nowhere" in refuse("-cn", "nowhere")


def test_a_sweep_over_experiments_with_their_own_sweep_is_refused(mine):
    assert "one after another" in refuse("-m", "--config-dir", str(mine), "experiment=one,two")


@pytest.mark.parametrize(
    "word", ["dataset.max_samples=???", "logger.project=???", "stand_in_for=???", "model_group.architectures=[???]"]
)
def test_a_value_that_is_still_to_be_given_is_named_by_its_full_key(word):
    key = "model_group.architectures.0" if "[" in word else word.partition("=")[0]
    assert refuse(word) == f"{key} is ???, a value that has to be given; write {key}=VALUE"
    assert key in refuse("-m", word.replace("???", "???,1"))


def test_touched_groups():
    assert chosen_groups(["+alignment=gcsa", "seed=3"], ["alignment"]) == {"alignment": "gcsa"}


@pytest.mark.parametrize("words", [["--help"], ["alignement=rcsa"]], ids=["help", "mistake"])
def test_answers_come_without_heavy_imports(words):
    """Three seconds are enough on a busy machine too, because torch, datasets and wandb are never imported."""
    code = (
        "import runpy, sys; sys.path.insert(0, 'src'); sys.argv = ['src/train.py', *sys.argv[1:]]\n"
        "try: runpy.run_path('src/train.py', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'lightning', 'timm', 'datasets', 'wandb', 'sklearn', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 30  # a hang, not a speed: speed is measured by make bench


def asked(*words, line=None):
    """What Hydra itself answers, in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")} | ({"COMP_LINE": line} if line else {})
    command = [sys.executable, "src/train.py", *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_completion_knows_groups_choices_and_keys(mine):
    assert "complete -o nospace -o default -F hydra_bash_completion python" in asked("-sc", "install=bash")
    for line, expected in {
        "ali": {"alignment=", "alignment."},
        "seed=1 scale=s": {"scale=small", "scale=smoke"},
        "alignment.proto": {"alignment.proto_weight="},
    }.items():
        assert set(asked("-sc", "query=bash", line=f"python src/train.py {line}").split()) == expected
    line = f"python src/train.py hydra.searchpath=[file://{mine}] alignment=my"
    assert asked("-sc", "query=bash", line=line).split() == ["alignment=mymse"]


def test_hydras_own_questions_are_answered(mine):
    assert f"file://{mine}" in asked("--info", "searchpath", "--config-dir", str(mine))
    shown = asked("alignment=mymse", "--cfg", "job", "--resolve", "--package", "alignment", "--config-dir", str(mine))
    assert "inst_weight: 0.5" in shown
    assert "${" not in asked("--cfg", "job", "--resolve", "experiment=table_3", "scale=small")


def test_words_may_stand_on_both_sides_of_flags():
    assert words_first(["seed=1", "-m", "rounds=2", "-cd", "a=b"]) == ["seed=1", "rounds=2", "-m", "-cd", "a=b"]
