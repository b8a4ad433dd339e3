"""Entry: ``python src/dashboard.py --tier small``. Saves a workspace and a report of the mirrored runs in W&B."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from fedsaf.core.config import nearest
from fedsaf.reproduction.folders import check_output
from fedsaf.reproduction.selection import TIERS
from fedsaf.tracking.dashboard import Scope, report, specification, workspace
from fedsaf.tracking.location import load_environment
from fedsaf.tracking.upload import service_problem


def main() -> int:
    """Save both views, or write what they would be; return the exit status."""
    load_environment(Path(__file__).resolve().parent.parent / ".env")
    parser = _parser()
    options = parser.parse_args()
    if options.dry_run:
        check_output(options.out, parser)
    if options.tier and options.tier not in TIERS:
        sys.exit(f"error: --tier {options.tier} is unknown; {nearest(options.tier, TIERS)}")
    scope = Scope(options.entity, options.project, options.tier or None, options.dataset)
    try:
        if options.dry_run:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(specification(scope), indent=1) + "\n", encoding="utf-8")
            print(f"specification of the workspace and the report: {options.out}")
            return 0
        problem = service_problem()
        if problem:
            sys.exit(f"error: {problem}; --dry-run writes the specification without W&B")
        return _save(scope)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "wandb_workspaces":
            raise
        sys.exit("error: the package wandb-workspaces is missing; pip install -e '.[dashboard]' brings it")


def _save(scope: Scope) -> int:
    import wandb

    owner = scope.entity or wandb.Api().default_entity
    scope = Scope(owner, scope.project, scope.tier, scope.dataset)
    for view in (workspace(scope), report(scope)):
        print(view.save().url)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entity", default=os.environ.get("WANDB_ENTITY"), help="user or team; the account's own")
    parser.add_argument("--project", default=os.environ.get("WANDB_PROJECT", "fedsaf"), help="project (fedsaf)")
    parser.add_argument("--tier", default="small", help=f"show runs of {', '.join(TIERS)}; '' for all (small)")
    parser.add_argument("--dataset", default=None, help="show runs on this data set alone")
    parser.add_argument("--dry-run", action="store_true", help="write the specification, contact nobody")
    parser.add_argument("--out", type=Path, default=Path("report/dashboard.json"), help="where --dry-run writes")
    return parser


if __name__ == "__main__":
    sys.exit(main())
