"""Which folders of runs an entry reads, and where it may write."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path


def add_runs_argument(parser: argparse.ArgumentParser) -> None:
    """Let an entry take folders of run folders."""
    parser.add_argument("runs", nargs="*", type=Path, help="folders of run folders; default: RESULTS_ROOT, else runs")


def folders_of(runs: Sequence[Path], parser: argparse.ArgumentParser) -> list[Path]:
    """Return the folders to read; a default that does not exist holds no runs, one that was named is a mistake."""
    missing = [str(path) for path in runs if not path.is_dir()]
    if missing:
        parser.error(f"no such folder: {', '.join(missing)}")
    default = Path(os.environ.get("RESULTS_ROOT", "runs"))
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
