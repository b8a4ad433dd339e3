"""Entry: recorded runs -> the tables of the papers, beside the printed numbers. Reads run folders only.

Example:
    python src/report.py runs --tier small --table saf-t3
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from fedsaf.results.collect import collect
from fedsaf.results.recorder import write_atomically
from fedsaf.results.render import comma_separated, latex, markdown
from fedsaf.results.selection import TIERS, table_definitions
from fedsaf.results.tables import FilledTable, fill

FORMATS = {"md": markdown, "csv": comma_separated, "tex": latex}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the tables; return 0, or 1 if a run is at fault or a table that was asked for has no finished run."""
    options = _options(arguments)
    runs, aside = collect(options.runs)
    tables = [
        fill(table_definitions()[name], options.tier, runs, aside) for name in options.table or table_definitions()
    ]
    options.output.mkdir(parents=True, exist_ok=True)
    for table in tables:
        _write(table, options.output)
    where = ", ".join(map(str, options.runs))
    print(f"{len(runs)} finished runs in {where}; tables of tier {options.tier} in {options.output}")
    faults = [f"{folder.folder}: {folder.reason}" for folder in aside if folder.is_fault]
    faults += [f"{table.definition.name}: {text}" for table in tables for cell in table for text in cell.problems]
    for fault in dict.fromkeys(faults):
        print(f"does not count: {fault}")
    empty = [table.definition for table in tables if not table.num_filled]
    for definition in empty if options.table else ():
        print(f"{definition.name}: no finished run of tier {options.tier}; its runs: {definition.target}")
    return int(bool(faults) or bool(options.table and empty))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = Path(os.environ.get("RESULTS_ROOT", "runs"))
    parser.add_argument(
        "runs", nargs="*", type=Path, default=[root], help="folders of run folders; default: RESULTS_ROOT, else runs"
    )
    parser.add_argument("--tier", choices=TIERS, default="small", help="whose runs; tiers are never mixed")
    parser.add_argument("--table", nargs="+", choices=table_definitions(), metavar="NAME", help="tables; default: all")
    parser.add_argument("--output", type=Path, default=Path("report"), help="folder of the tables")
    options = parser.parse_args(arguments)
    missing = [str(path) for path in options.runs if not path.is_dir()]
    if missing:
        parser.error(f"no such folder: {', '.join(missing)}")
    return options


def _write(table: FilledTable, folder: Path) -> None:
    """Write one file per format, and say how full the table is."""
    for ending, render in FORMATS.items():
        write_atomically(folder / f"{table.definition.name}_{table.tier}.{ending}", render(table))
    num_cells = len(list(table))
    if table.num_filled:
        print(f"{table.definition.name}: {table.num_filled} of {num_cells} cells")


if __name__ == "__main__":
    sys.exit(main())
