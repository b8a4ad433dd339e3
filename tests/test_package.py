"""What is installed: the wheel has all files that the code reads, and every command starts something."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BUILT_FROM = ("src", "conf", "pyproject.toml", "README.md", "LICENSE")
pytestmark = pytest.mark.skipif(not (find_spec("pip") and find_spec("setuptools")), reason="needs pip and setuptools")
COMMANDS = """
import sys
from importlib.metadata import distributions
from pathlib import Path

import fedsaf
from fedsaf.core.config import CONF

place = Path(sys.argv[1])
assert place in Path(fedsaf.__file__).parents and CONF == place / "fedsaf" / "conf", (fedsaf.__file__, CONF)
(distribution,) = distributions(path=[str(place)])
for command in distribution.entry_points.select(group="console_scripts"):
    assert callable(command.load()), command
    print(command.name)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel of a copy, without network or what an earlier build left; return where it is unpacked."""
    source, folder = (tmp_path_factory.mktemp(name) for name in ("source", "wheel"))
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / name, source)
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder)]
    command = [sys.executable, "-m", "pip", "wheel", *options, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = folder.glob("fedsaf-*.whl")
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def test_the_wheel_has_every_file_that_the_code_reads(wheel):
    package = ROOT / "src" / "fedsaf"
    data = [path for path in package.rglob("*") if path.suffix in (".csv", ".yaml", ".j2", ".css", ".js", ".typed")]
    wanted = {path.relative_to(package) for path in data} | {
        Path("conf") / path.relative_to(ROOT / "conf") for path in (ROOT / "conf").rglob("*.yaml")
    }
    assert {Path(name) for name in ("py.typed", "conf/train.yaml", "reproduction/names.yaml")} <= wanted
    assert {path.suffix for path in wanted} == {".csv", ".yaml", ".j2", ".css", ".js", ".typed"}
    installed = wheel / "fedsaf"
    assert not [path for path in wanted if not (installed / path).is_file()]
    assert not [path for path in wheel.rglob("*") if path.is_symlink()]
    assert (installed / "conf" / "train.yaml").read_bytes() == (ROOT / "conf" / "train.yaml").read_bytes()


@pytest.mark.slow
def test_every_command_of_the_wheel_starts_something(wheel):
    environment = {**os.environ, "PYTHONPATH": str(wheel)}
    command = [sys.executable, "-c", COMMANDS, str(wheel)]
    done = subprocess.run(command, cwd=wheel, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert sorted(done.stdout.split()) == sorted(scripts)
