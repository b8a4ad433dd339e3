"""Which folders of runs an entry reads."""

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
    return list(runs) or ([default] if default.is_dir() else [])
