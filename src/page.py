"""Entry: recorded runs -> one HTML page with claims, tables, figures and runs. It needs neither network nor server.

Example:
    python src/page.py runs --output report/index.html
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fedsaf.core.files import write_atomically
from fedsaf.reproduction.collect import collect
from fedsaf.reproduction.frame import collect as collect_frame
from fedsaf.reproduction.matching import Matcher
from fedsaf.reproduction.page.build import page
from fedsaf.tracking.location import add_runs_argument, check_output, folders_of, load_environment

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; return 0, or 1 if a run is at fault."""
    load_environment()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_runs_argument(parser)
    parser.add_argument("--output", type=Path, default=Path("report/index.html"), help="the page")
    options = parser.parse_args(arguments)
    check_output(options.output, parser)
    folders = folders_of(options.runs, parser)
    runs, aside = collect(folders)
    text, faults = page(runs, aside, Matcher(collect_frame(folders)))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(options.output, text)
    print(f"{len(runs)} finished runs, {len(aside)} folders that do not count; {options.output}")
    for fault in faults:
        print(f"does not count: {fault}")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
