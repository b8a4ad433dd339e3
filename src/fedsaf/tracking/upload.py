"""Upload of offline runs to Weights & Biases, ``python src/sync.py runs``; what has arrived is not sent again.

``wandb sync`` does the work. It joins parts that have one id, and leaves a file ``*.wandb.synced`` beside each part
that has arrived. Its exit status says nothing, so these files decide what went well.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from urllib.parse import urlsplit

from filelock import FileLock, Timeout

from fedsaf.core.identity import lock_path
from fedsaf.tracking.location import add_runs_argument, folders_of, load_environment

PARTS = "wandb/offline-run-*"
"""Where a run folder holds what was mirrored offline, one part for every start."""
FIRST_ROUND = "first_round"
"""File in a part that says where it begins: names of parts hold local times, which do not order starts."""
MARK = re.compile(r"^wandb:\s*(ERROR|WARNING)?")  # begins a line of wandb's own


def has_arrived(part: Path) -> bool:
    """Return whether every file of a part has its mark."""
    return all(Path(f"{file}.synced").exists() for file in part.glob("*.wandb"))


def pending(roots: Iterable[Path]) -> tuple[dict[Path, list[Path]], int]:
    """Return the parts that wait by run folder, in order of rounds, and how many parts arrived earlier.

    A run that a process is writing waits too, but is not listed: once a part has its mark, nothing more of it is sent.
    """
    found: dict[Path, list[Path]] = {}
    arrived = 0
    for root in roots:
        for folder in sorted(path.parent for path in root.glob("*/wandb")):
            parts = [part for part in sorted(folder.glob(PARTS), key=_order) if any(part.glob("*.wandb"))]
            waiting = [part for part in parts if not has_arrived(part)]
            arrived += len(parts) - len(waiting)
            if waiting and not _is_written(folder):
                found[folder] = waiting
    return found, arrived


def _order(part: Path) -> tuple[int, str]:
    """Return the first round of a part; one without a logged round goes first, where it can overtake nothing."""
    mark = part / FIRST_ROUND
    return int(mark.read_text(encoding="utf-8")) if mark.exists() else -1, part.name


def _is_written(folder: Path) -> bool:
    path = lock_path(folder)
    try:
        with FileLock(path, timeout=0) if path.exists() else nullcontext():
            return False
    except Timeout:
        return True


def send(parts: Sequence[Path], entity: str | None, project: str | None, command: Sequence[str] = ()) -> str:
    """Send the parts of one run in order, none past one that did not arrive; return why some did not, or "".

    ``entity`` and ``project`` stand in for those the run was made for, ``command`` for ``wandb`` of this Python.
    """
    # A service that this process started would be used, and go down with what the child makes of it; and whoever
    # mirrors offline may say so by WANDB_MODE, which would keep the upload from home.
    environment = {name: value for name, value in os.environ.items() if name not in ("WANDB_SERVICE", "WANDB_MODE")}
    options = [f"--{name}={value}" for name, value in (("entity", entity), ("project", project)) if value]
    for part in parts:
        words = [*(command or (sys.executable, "-m", "wandb")), "sync", "--yes", *options, str(part)]
        result = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment)
        if not has_arrived(part):
            said = [MARK.sub("", line).strip() for line in f"{result.stdout}\n{result.stderr}".splitlines()]
            last = next((line for line in reversed(said) if line), f"wandb sync ended with status {result.returncode}")
            return f"{part.name}: {last}"
    return ""


def service_problem(timeout: float = 5.0) -> str:
    """Return why the service cannot be used: no key, or no answer in so many seconds; an empty text if it can."""
    import wandb

    wandb.setup(settings=wandb.Settings(silent=True, mode="online"))
    url = wandb.setup().settings.base_url
    try:
        if not wandb.login(prompt=False, verify=False):
            return "no W&B key found; log in with `wandb login` or set WANDB_API_KEY"
        parts = urlsplit(url)  # wandb itself would try for much longer than it is told
        address = parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443)
        socket.create_connection(address, timeout).close()
    except OSError as error:
        return f"W&B does not answer at {url}: {error}"
    except Exception as error:
        return str(error).partition("\n")[0]
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """List what waits, send it, say what did not arrive; return the exit status."""
    load_environment()
    parser = argparse.ArgumentParser(description="Uploads runs that W&B mirrored offline.")
    add_runs_argument(parser)
    parser.add_argument("--entity", default=None, help="user or team instead of the one in the runs")
    parser.add_argument("--project", default=None, help="project instead of the one in the runs")
    parser.add_argument("--dry-run", action="store_true", help="list what would be sent, contact nobody")
    options = parser.parse_args(arguments)
    waiting, arrived = pending(folders_of(options.runs, parser))
    print(f"{sum(map(len, waiting.values()))} parts of {len(waiting)} runs to send, {arrived} parts sent earlier")
    if options.dry_run:
        for folder, parts in waiting.items():
            print(f"{folder}: {', '.join(part.name for part in parts)}")
    elif waiting and (problem := service_problem()):
        sys.exit(f"error: {problem}. Nothing was sent")
    failed = 0
    for number, (folder, parts) in enumerate({} if options.dry_run else waiting.items(), 1):
        reason = send(parts, options.entity, options.project)
        failed += bool(reason)
        print(f"{number}/{len(waiting)} {'failed' if reason else 'sent'} {folder}{f': {reason}' if reason else ''}")
    return int(failed > 0)
