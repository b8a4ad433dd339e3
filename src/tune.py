"""Entry: ``python src/tune.py --scale small``. Chooses lambda and gamma of each loss on held-out samples.

Runs what the experiment ``tune`` still lacks, prints all scores, and writes the chosen weights to
``report/tuned.yaml``; ``--write`` also makes them those of the scale.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import yaml

from fedsaf.core.config import ConfigError
from fedsaf.federation.interrupt import EXIT_AGAIN, leave_on_request
from fedsaf.reproduction.collect import collect
from fedsaf.reproduction.composer import Composer
from fedsaf.reproduction.experiments import SCALES, cells
from fedsaf.reproduction.launch import LAUNCHERS, fill, thread_words
from fedsaf.reproduction.plan import Plan, expected_costs, plan_table
from fedsaf.reproduction.tuning import EXPERIMENT, check_writable, chosen, score_table, scores, tuned, write_weights
from fedsaf.tracking.closing import wide_console
from fedsaf.tracking.location import check_output, load_environment

SOURCE = Path(__file__).resolve().parent
CONF = SOURCE.parent / "conf"


def main() -> int:
    """Run, choose, write; return 1 if a run failed or a loss has no weights."""
    leave_on_request()
    parser = _parser()
    options = parser.parse_intermixed_args()
    check_output(options.out, parser)
    load_environment()
    console = wide_console()
    try:
        threads = thread_words(options.launcher, options.jobs)
        if options.write and options.words:
            raise ConfigError(f"--write: weights chosen under {' '.join(options.words)} are not those of the scale")
        composer = Composer(CONF)
        plan = Plan(EXPERIMENT, options.scale, cells(EXPERIMENT, options.scale, options.words, None, composer))
        if options.write:
            check_writable(plan.runs)
        jobs = 1 if options.launcher == "basic" else options.jobs
        console.print(plan_table(plan, expected_costs(plan, composer, console, words=threads), jobs))
        status = fill(plan, options.launcher, SOURCE / "train.py", jobs)
        if status == EXIT_AGAIN:
            return status
        recorded, _ = collect([Path(plan.runs[0].config["results_root"])], validated=True)
        found = scores(plan.runs, {run.folder: run for run in recorded})
        console.print(score_table(found))
        best = chosen(found)
        lost = {score.alignment for score in found} - set(best)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(yaml.safe_dump(tuned(best), sort_keys=False), encoding="utf-8")
        console.print(f"chosen weights: {options.out}")
        for path in write_weights(best, plan.runs, CONF) if options.write and not lost else ():
            console.print(f"scale {options.scale} uses {path}")
    except ConfigError as error:
        sys.exit(f"error: {error}")
    if lost:
        console.print(
            f"no weights for {', '.join(sorted(lost))}: no pair has a result for every seed; nothing is written to "
            "conf/, where losses with chosen weights would stand against others without"
        )
    return max(status, int(bool(lost)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="further override words for every run")
    parser.add_argument("--scale", "--tier", default="small", help=f"{', '.join(SCALES)} (default small)")
    parser.add_argument("--launcher", default="basic", help=", ".join(LAUNCHERS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs side by side, not with basic")
    parser.add_argument("--out", type=Path, default=Path("report/tuned.yaml"), help="where the chosen weights go")
    parser.add_argument("--write", action="store_true", help="write them into conf/alignment for the scale")
    return parser


if __name__ == "__main__":
    sys.exit(main())
