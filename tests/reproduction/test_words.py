"""Words and seeds that a target cannot take are answered with what it can, before anything starts."""

import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from fedsaf.core.config import ConfigError
from fedsaf.reproduction.composer import Composer, seeds_of
from fedsaf.reproduction.experiments import cells, experiments_of
from fedsaf.reproduction.probe import probed_costs

CONF = Path(__file__).resolve().parents[2] / "conf"
REBUILD = CONF.parent / "src" / "rebuild.py"


@pytest.fixture(scope="module")
def composer():
    return Composer(CONF)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rouds=3"], "rouds is no key of this configuration; did you mean rounds"),
        (["optimizer.lrr=3"], "optimizer.lrr is no key of this configuration; did you mean optimizer.lr"),
        (["dataset=cifr10"], "dataset=cifr10 is unknown; did you mean cifar10"),
        (["method=fedsaf_gsca"], "method=fedsaf_gsca is unknown; did you mean fedsaf_gcsa"),
        (["scale=full"], "scale=full: the scale is chosen by TIER="),
        (["experiment=table_1"], "experiment=table_1: a target has experiments of its own"),
        (["validation=held_out"], "validation=held_out: runs that are scored on a validation part stand in no table"),
        (["results_root="], "results_root is None; expected the name of a folder"),
        (["batch_size=${nothing}"], "batch_size=${nothing}: Interpolation key 'nothing' not found"),
        (["rounds=1,2"], "rounds=1,2 is a sweep; a target brings its own"),
        (["rounds"], "rounds is no override; write key=value"),
    ],
)
def test_words(composer, words, message):
    with pytest.raises(ConfigError) as caught:
        cells("figure-7", "smoke", words, None, composer)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_root_that_is_a_file(composer, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is a file; expected a folder"):
        cells("figure-7", "smoke", [f"results_root={tmp_path / 'file'}"], None, composer)


@pytest.mark.parametrize("target", ["table", "figure", "fedtgp", "fedproc", "methods", "", "TABLE-3"])
def test_the_beginning_of_a_target_is_none(target):
    with pytest.raises(ConfigError, match=f"{target} is no target; "):
        experiments_of(target, CONF)


@pytest.mark.parametrize("text", ["0,", ",", " ", "null", "0x10", "1.5", "-1", "a,b", "0,0", "1,01", "²"])
def test_seeds_that_are_none(text):
    with pytest.raises(ConfigError, match="expected different whole numbers >= 0, such as 0,1,2"):
        seeds_of(text)


def test_seeds():
    assert seeds_of("") is None
    assert seeds_of("0,1,2") == ["0", "1", "2"]
    assert seeds_of("3, 010") == ["3", "10"]


@pytest.mark.parametrize("content", ["[1]", '"x"', "3", "[" * 100_000, "{"])
def test_a_status_that_cannot_be_read_is_no_result(composer, tmp_path, content):
    run = cells("figure-7", "smoke", [f"results_root={tmp_path}"], None, composer)[0]
    run.folder.mkdir()
    (run.folder / "status.json").write_text(content)
    assert not run.is_finished
    (run.folder / "status.json").unlink()
    (run.folder / "status.json").mkdir()
    assert not run.is_finished


def test_an_environment_file_that_cannot_be_read_is_said(tmp_path):
    """Of a copy of the entry, since the file lies beside the sources."""
    (tmp_path / "src").symlink_to(REBUILD.parent)
    (tmp_path / "src_of_its_own").mkdir()
    entry = tmp_path / "src_of_its_own" / "sync.py"
    entry.write_text((REBUILD.parent / "sync.py").read_text())
    for content in (b"RESULTS_ROOT=\xff\n", b"A=\x00\n"):
        (tmp_path / ".env").write_bytes(content)
        result = subprocess.run(
            [sys.executable, str(entry), "--dry-run"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={"PYTHONPATH": str(REBUILD.parent)},
            timeout=120,
        )
        assert result.returncode == 1
        assert result.stderr.startswith(f"error: {tmp_path / '.env'} cannot be read: ")
        assert "Traceback" not in result.stderr


def test_a_data_set_of_unknown_size_is_not_measured_and_stops_nothing(composer, tmp_path):
    (tmp_path / "images").mkdir()
    words = ["dataset=imagefolder", f"dataset.path={tmp_path / 'images'}", "method=local"]
    run = cells("figure-7", "full", words, ["0"], composer)[0]
    console = Console(file=StringIO(), width=200)
    assert probed_costs([run], composer, console) == {}
    assert "not measured: imagefolder" in console.file.getvalue()
    assert "the size of dataset=imagefolder is not known before it is read" in console.file.getvalue()
