"""Mistakes on the command line get an answer before anything is loaded, with the nearest right word."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedsaf.cli import check_command_line, chosen_groups
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
        ["partition=dirichlet", "partition.alpha=0.3"],
        ["partition='dirichlet_0.1'", "seed=null"],
        ["hydra.sweep.subdir=.", "fabric.devices=2"],
        ["method=fedsaf_gcsa", "alignment.proto_weight=10"],
        ["method=fedtgp", "alignment=gcsa", "prototype.margin=none"],
        ["method=alignfed", "alignment=rcsa"],
        ["method=fedsa", "prototype.variant=train"],
        ["--help"],
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


def test_a_sweep_over_experiments_with_their_own_sweep_is_refused(tmp_path):
    import shutil

    folder = shutil.copytree(CONF, tmp_path / "conf")
    for name in ("one", "two"):
        (folder / "experiment").mkdir(exist_ok=True)
        (folder / "experiment" / f"{name}.yaml").write_text(
            "# @package _global_\nhydra:\n  sweeper:\n    params: {seed: '0,1'}\n"
        )
    with pytest.raises(ConfigError, match="one after another"):
        check_command_line(["-m", "experiment=one,two"], folder, "train")


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
