"""Where recorded runs are, where an entry may write, and the variables of ``.env``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from dotenv import dotenv_values, find_dotenv, load_dotenv

RUNS = "runs"
"""Name of the folder into which runs go by default."""
CHECKOUT = Path(__file__).resolve().parents[3]


def results_root() -> Path:
    """Return ``RESULTS_ROOT`` if it is set, else the nearest folder ``runs`` in this folder or above it.

    The nearest ``.env`` may set it too, relative to its folder. FileNotFoundError if neither is there.
    """
    file = find_dotenv(usecwd=True)
    written = dotenv_values(file).get("RESULTS_ROOT") if file else None
    named = os.environ.get("RESULTS_ROOT") or (written and str(Path(file).parent / written))
    if named:
        if not Path(named).is_dir():
            raise FileNotFoundError(f"RESULTS_ROOT is {named!r}, which is no folder")
        return Path(named)
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / RUNS).is_dir():
            return folder / RUNS
    raise FileNotFoundError(f"no folder {RUNS!r} in {here} or above it; set RESULTS_ROOT to the folder of your runs")


def load_environment() -> None:
    """Set the variables of ``.env`` that are not set yet: the checkout's, else the nearest file from this folder up."""
    file = CHECKOUT / ".env" if (CHECKOUT / ".env").exists() else find_dotenv(usecwd=True)
    try:
        load_dotenv(file)
    except (OSError, ValueError) as error:
        raise SystemExit(f"error: {file} cannot be read: {error}") from error


def add_runs_argument(parser: argparse.ArgumentParser) -> None:
    """Let an entry take folders of run folders."""
    parser.add_argument("runs", nargs="*", type=Path, help="folders of run folders; default: RESULTS_ROOT, else runs")


def folders_of(runs: Sequence[Path], parser: argparse.ArgumentParser) -> list[Path]:
    """Return the folders to read; a default that does not exist holds no runs, one that was named is a mistake."""
    missing = [str(path) for path in runs if not path.is_dir()]
    if missing:
        parser.error(f"no such folder: {', '.join(missing)}")
    default = Path(os.environ.get("RESULTS_ROOT", RUNS))
    if not runs and default.exists() and not default.is_dir():
        parser.error(f"RESULTS_ROOT={default} is a file; expected a folder of run folders")
    return list(runs) or ([default] if default.is_dir() else [])


def check_output(path: Path, parser: argparse.ArgumentParser, is_folder: bool = False) -> None:
    """Refuse a place where no file, or folder, can be made, before anything is read."""
    folder = path if is_folder else path.parent
    blocked = next((place for place in (folder, *folder.parents) if place.exists()), folder)
    if not blocked.is_dir():
        parser.error(f"nothing can be written to {path}: {blocked} is a file")
    if not is_folder and path.is_dir():
        parser.error(f"nothing can be written to {path}: it is a folder, expected a file")
