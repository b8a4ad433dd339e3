"""Where recorded runs are, for whoever reads them from another folder than the one they were started in; ``.env``."""

from __future__ import annotations

import os
from pathlib import Path

from dotenv import dotenv_values, find_dotenv, load_dotenv

RUNS = "runs"
"""Name of the folder into which runs go by default."""


def results_root() -> Path:
    """Return ``RESULTS_ROOT`` if it is set, else the nearest folder ``runs`` in this folder or above it.

    The nearest ``.env`` may set it too; a relative path in there is relative to its folder.

    Raises:
        FileNotFoundError: neither is there; the message says how to name one.
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


def load_environment(file: Path) -> None:
    """Set the variables of a file ``.env`` that are not set yet; a missing file sets none.

    Raises:
        SystemExit: it cannot be read; the message says why.
    """
    try:
        load_dotenv(file)
    except (OSError, ValueError) as error:
        raise SystemExit(f"error: {file} cannot be read: {error}") from error
