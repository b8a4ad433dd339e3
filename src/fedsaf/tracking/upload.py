"""Upload of offline runs to Weights & Biases: what waits, and how it goes there, parts of one run in order of start.

``wandb sync`` does the work. It joins parts that have one id, and leaves a file ``*.wandb.synced`` beside each part
that has arrived; what has one is not sent again. Its exit status says nothing, so these files decide what went well.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from filelock import FileLock, Timeout

from fedsaf.core.config import lock_path

CONNECT_SECONDS = 5.0
"""How long the service may take to answer before anything is sent."""
MARK = re.compile(r"^wandb:\s*(ERROR|WARNING)?")
"""How a line of wandb's own begins."""


@dataclass(frozen=True)
class Pending:
    """Offline parts of one run folder that have not arrived yet.

    Attributes:
        folder: the run folder.
        parts: its ``wandb/offline-run-<time>-<id>`` folders, oldest first.
    """

    folder: Path
    parts: Sequence[Path]

    @property
    def left(self) -> list[Path]:
        """Parts that have still not arrived."""
        return [part for part in self.parts if not has_arrived(part)]


def has_arrived(part: Path) -> bool:
    """Return whether every file of a part has its mark."""
    return all(Path(f"{file}.synced").exists() for file in part.glob("*.wandb"))


def pending(roots: Iterable[Path]) -> tuple[list[Pending], int]:
    """Return what waits below the roots, and how many parts arrived earlier.

    A run that a process is writing waits too, but is not listed: once a part has its mark, nothing more of it is sent.

    Args:
        roots: folders of run folders.

    Raises:
        ValueError: a root that is no folder.
    """
    found, arrived = [], 0
    for root in roots:
        if not root.is_dir():
            raise ValueError(f"{root} is no folder; expected one that holds run folders, such as runs")
        for wandb in sorted(root.glob("*/wandb")):
            # The name begins with the time of start, so the order of names is that of parts.
            parts = [part for part in sorted(wandb.glob("offline-run-*")) if any(part.glob("*.wandb"))]
            waiting = [part for part in parts if not has_arrived(part)]
            arrived += len(parts) - len(waiting)
            if waiting and not _is_written(wandb.parent):
                found.append(Pending(wandb.parent, waiting))
    return found, arrived


def _is_written(folder: Path) -> bool:
    """Return whether a process holds this run."""
    path = lock_path(folder)
    try:
        with FileLock(path, timeout=0) if path.exists() else nullcontext():
            return False
    except Timeout:
        return True


def send(run: Pending, entity: str | None, project: str | None, command: Sequence[str] = ()) -> str:
    """Send the parts of one run; return why some did not arrive, or an empty text.

    Args:
        run: what waits.
        entity: user or team instead of the one the run was made for.
        project: project instead of it.
        command: what is called instead of ``wandb`` of this Python.
    """
    start = list(command) or [sys.executable, "-m", "wandb"]
    # A service that this process started would be used, and go down with what the child makes of it; and whoever
    # mirrors offline may say so by WANDB_MODE, which would keep the upload from home.
    environment = {name: value for name, value in os.environ.items() if name not in ("WANDB_SERVICE", "WANDB_MODE")}
    options = [f"--{name}={value}" for name, value in (("entity", entity), ("project", project)) if value]
    for part in run.parts:
        words = [*start, "sync", "--yes", *options, str(part)]
        result = subprocess.run(
            words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=environment
        )
        if not has_arrived(part):
            # The next part of the same run must not overtake this one.
            said = [MARK.sub("", line).strip() for line in f"{result.stdout}\n{result.stderr}".splitlines()]
            last = next((line for line in reversed(said) if line), f"wandb sync ended with status {result.returncode}")
            return f"{part.name}: {last}"
    return ""


def service_problem() -> str:
    """Return why the service cannot be used: no key, or no answer; an empty text if it can."""
    import wandb

    wandb.setup(settings=wandb.Settings(silent=True, mode="online"))
    try:
        if not wandb.login(prompt=False, verify=False):
            return "no W&B key found; log in with `wandb login`, or set WANDB_API_KEY"
    except Exception as error:
        return str(error).partition("\n")[0]
    url = wandb.setup().settings.base_url
    wandb.teardown()
    try:
        knock(url, CONNECT_SECONDS)
    except OSError as error:
        return f"W&B does not answer at {url}: {error}"
    return ""


def knock(url: str, timeout: float) -> None:
    """Raise OSError if nobody listens at the server's address; wandb itself would try again for much longer."""
    parts = urlsplit(url)
    port = parts.port or (80 if parts.scheme == "http" else 443)
    with socket.create_connection((parts.hostname or "", port), timeout):
        pass
