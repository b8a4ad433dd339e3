"""Entry: ``python src/rebuild.py table-3 --scale small``. Runs what a table or figure of the papers still lacks.

Every run is one of ``src/train.py``; what is finished is skipped, what was killed is resumed, and the same run is
shared by all targets that want it. ``src/report.py`` makes tables and figures afterwards.
A figure over whole tables has no runs of its own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from fedsaf.core.config import ConfigError
from fedsaf.federation.interrupt import EXIT_AGAIN, leave_on_request
from fedsaf.reproduction.agreement import is_unseen
from fedsaf.reproduction.composer import Composer, seeds_of
from fedsaf.reproduction.experiments import SCALES, cells, check_scale, displays
from fedsaf.reproduction.figures.radar import RADAR
from fedsaf.reproduction.launch import LAUNCHERS, fill, thread_words
from fedsaf.reproduction.plan import Plan, expected_costs, plan_table
from fedsaf.reproduction.selection import table_definitions
from fedsaf.tracking.location import load_environment

SOURCE = Path(__file__).resolve().parent


def main() -> int:
    """Plan, run what is missing, report; return the exit status."""
    leave_on_request()
    options = _parser().parse_intermixed_args()
    load_environment()
    composer = Composer()
    try:
        seeds = seeds_of(options.seeds)
        threads = thread_words(options.launcher, options.jobs)
        if options.target == RADAR.target:
            check_scale(options.scale)
            if options.plan:
                print(f"{options.target} has no runs of its own: it is drawn from those of the tables")
                return 0
            return _report(options.target, options.scale, composer.compose(options.words)["results_root"])
        plan = Plan(options.target, options.scale, cells(options.target, options.scale, options.words, seeds, composer))
    except ConfigError as error:
        sys.exit(f"error: {error}")
    for word in options.words if options.scale == "full" else ():
        if not is_unseen(word.partition("=")[0]):
            print(f"{word}: at scale full, runs with it count only in cells whose labels name it")
    jobs = 1 if options.launcher == "basic" else options.jobs
    console = Console(width=120)
    console.print(plan_table(plan, expected_costs(plan, composer, console, options.plan, threads), jobs))
    if options.plan:
        return 0
    status = fill(plan, options.launcher, SOURCE / "train.py", jobs)
    if status == EXIT_AGAIN:
        return status
    return max(status, _report(options.target, options.scale, plan.runs[0].config["results_root"]))


def _report(target: str, scale: str, results: str) -> int:
    """Make the tables and figures of a target from the recorded runs; return the exit status."""
    tables = [name for name, table in table_definitions().items() if table.target == target]
    figures = [one.id for one in (*displays("figure").values(), RADAR) if one.target == target]
    if not tables and not figures:
        return 0
    words = [*(["--table", *tables] if tables else []), *(["--figure", *figures] if figures else [])]
    Path(results).mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(SOURCE / "report.py"), results, "--scale", scale, *words]
    return subprocess.run(command, check=False).returncode


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", help="table-1 ... table-9, figure-1 ..., fedtgp-k5 ..., fedproc-t2 ...")
    parser.add_argument("words", nargs="*", help="further override words for every run")
    parser.add_argument("--scale", "--tier", default="small", help=f"{', '.join(SCALES)} (default small)")
    parser.add_argument("--launcher", default="basic", help=", ".join(LAUNCHERS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs side by side, not with basic")
    parser.add_argument("--seeds", default="", help="instead of the experiment's, such as 0,1")
    parser.add_argument("--plan", action="store_true", help="measure what it would cost, and start nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
