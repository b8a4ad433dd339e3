"""Entry: ``python src/sync.py runs``. Uploads runs that W&B mirrored offline; what has arrived is not sent again."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fedsaf.reproduction.folders import add_runs_argument, folders_of
from fedsaf.tracking.location import load_environment
from fedsaf.tracking.upload import pending, send, service_problem


def main() -> int:
    """List what waits, send it, say what did not arrive; return the exit status."""
    load_environment(Path(__file__).resolve().parent.parent / ".env")
    parser = _parser()
    options = parser.parse_args()
    try:
        runs, arrived = pending(folders_of(options.runs, parser))
    except ValueError as error:
        sys.exit(f"error: {error}")
    parts = sum(len(run.parts) for run in runs)
    print(f"{parts} parts of {len(runs)} runs to send, {arrived} parts sent earlier")
    if options.dry_run:
        for run in runs:
            print(f"{run.folder}: {', '.join(part.name for part in run.parts)}")
        return 0
    if not runs:
        return 0
    problem = service_problem()
    if problem:
        sys.exit(f"error: {problem}. Nothing was sent")
    failed = 0
    for number, run in enumerate(runs, 1):
        reason = send(run, options.entity, options.project)
        failed += bool(reason)
        print(f"{number}/{len(runs)} {'failed' if reason else 'sent'} {run.folder}{f': {reason}' if reason else ''}")
    return int(failed > 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    add_runs_argument(parser)
    parser.add_argument("--entity", default=None, help="user or team instead of the one in the runs")
    parser.add_argument("--project", default=None, help="project instead of the one in the runs")
    parser.add_argument("--dry-run", action="store_true", help="list what would be sent, contact nobody")
    return parser


if __name__ == "__main__":
    sys.exit(main())
