"""The directions in which parts may import each other, and the shape of files; see docs/architecture.md."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "fedsaf"
FILES = sorted(PACKAGE.rglob("*.py"))

ALLOWED = {
    "core": set(),
    "losses": {"prototypes"},  # class means are taken in one place
    "prototypes": set(),
    "data": set(),
    "models": set(),
    "methods": {"losses", "prototypes", "models", "evaluation", "federation"},
    "evaluation": {"losses", "prototypes", "models"},
    "federation": {"losses", "prototypes", "data", "models", "evaluation"},
    "tracking": set(),
    "cli": set(),
    "assembly": {"data", "federation", "tracking"},
    "run": {"assembly", "federation", "tracking", "cli"},
    "train": {"run", "federation", "tracking", "cli"},
    "partition": {"assembly", "data", "tracking", "cli"},
    "bench": {"assembly", "federation", "losses", "prototypes", "tracking"},
    "reproduction": {"assembly", "federation", "tracking", "cli", "data"},  # composes runs; nothing imports it
}
EVERYWHERE = {"core"}


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_parts(path: Path) -> set[str]:
    parts = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the direction"
            names = [node.module]
        parts |= {name.split(".")[1] for name in names if name.startswith("fedsaf.")}
    return parts


@pytest.mark.parametrize(
    "path", [p for p in FILES if p.name != "__init__.py"], ids=lambda p: str(p.relative_to(PACKAGE))
)
def test_imports_obey_their_direction(path):
    part = part_of(path)
    assert part in ALLOWED, f"{part} has no place in the architecture"
    assert imported_parts(path) - {part} <= ALLOWED[part] | EVERYWHERE


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_files_and_functions_stay_readable(path):
    text = path.read_text()
    assert text.count("\n") <= 300
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 60, f"{path}:{node.lineno} {node.name}"


def test_no_drawer_for_odds_and_ends():
    assert not {p.name for p in FILES} & {"utils.py", "helpers.py", "base.py", "misc.py", "common.py"}


def test_configuration_is_seen_by_the_entry_alone():
    """Behind the assembly nobody sees a config object or Hydra; the sweep's callback and the
    planning of sweeps are Hydra's own side."""
    allowed = {"assembly.py", "run.py", "cli.py", "config.py", "resolvers.py", "callbacks.py", "closing.py"}
    allowed |= {"composer.py", "train.py", "partition.py", "bench.py"}
    for path in FILES:
        if path.name not in allowed:
            text = path.read_text()
            assert not re.search(r"^\s*(from|import) (omegaconf|hydra)", text, re.MULTILINE), path


def test_the_loop_knows_no_method():
    for name in ("loop", "local_training", "server", "pool", "round_logger", "ranks"):
        text = (PACKAGE / "federation" / f"{name}.py").read_text()
        assert "method.name" not in text
        assert "rcsa" not in text.lower()
