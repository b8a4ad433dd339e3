"""Entry: recorded runs -> what they say about each claim of the papers. Reads run folders only.

Example:
    python src/claims.py runs --scale small full
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fedsaf.core.files import write_atomically
from fedsaf.reproduction.claims.definition import claim_definitions
from fedsaf.reproduction.claims.judging import judge_all
from fedsaf.reproduction.claims.text import counts, document, problems_of
from fedsaf.reproduction.collect import collect
from fedsaf.reproduction.selection import SCALES
from fedsaf.tracking.location import add_runs_argument, check_output, folders_of, load_environment

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page of claims; return 0, or 1 if a run is at fault."""
    load_environment()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_runs_argument(parser)
    parser.add_argument(
        "--scale",
        "--tier",
        nargs="+",
        choices=SCALES,
        default=["small", "full"],
        help="a claim has a line for each that has runs",
    )
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "claims.md", help="the page")
    options = parser.parse_args(arguments)
    check_output(options.output, parser)
    runs, aside = collect(folders_of(options.runs, parser))
    if not runs and options.output.exists():
        print(f"no finished run, so {options.output} is left as it is")
        return 1
    judged = judge_all(claim_definitions().values(), options.scale, runs, aside)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    used = len({name for one in judged for name in one.runs})
    sources = f"Scales {' and '.join(options.scale)}: {used} recorded runs have a place in a claim."
    write_atomically(options.output, document(judged, sources))
    print(f"{len(runs)} finished runs; {options.output}\n{counts(judged)}")
    faults = [f"{folder.folder}: {folder.reason}" for folder in aside if folder.is_fault]
    faults += [f"{text} (in {', '.join(names)})" for text, names in problems_of(judged).items()]
    for fault in faults:
        print(f"does not count: {fault}")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
