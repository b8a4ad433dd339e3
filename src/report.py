"""Entry: recorded runs -> the tables and figures of the papers, beside the printed numbers. Reads run folders only.

Example:
    python src/report.py runs --scale small --table saf-t3 --figure figure-7
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fedsaf.core.files import write_atomically
from fedsaf.reproduction.collect import collect
from fedsaf.reproduction.experiments import called, displays
from fedsaf.reproduction.figures.papers import BuiltFigure, build, write
from fedsaf.reproduction.figures.radar import RADAR, build_radar, run_targets
from fedsaf.reproduction.frame import collect as collect_frame
from fedsaf.reproduction.matching import Matcher
from fedsaf.reproduction.render import comma_separated, latex, markdown
from fedsaf.reproduction.selection import SCALES, table_definitions, tables_of
from fedsaf.reproduction.tables import FilledTable, fill
from fedsaf.tracking.location import add_runs_argument, check_output, folders_of, load_environment

ROOT = Path(__file__).resolve().parent.parent
FIGURES = "figures"
"""Folder of the figures within that of the tables."""
FORMATS = {"md": markdown, "csv": comma_separated, "tex": latex}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write tables and figures; return 0, or 1 if a run is at fault or something asked for has no finished run."""
    load_environment()
    options = _options(arguments)
    runs, aside = collect(options.runs)
    tables = [fill(definition, options.scale, runs, aside) for definition in options.table]
    matcher = Matcher(collect_frame(options.runs if options.figure else ()))
    figures = [
        build_radar(options.scale, runs, aside) if display is RADAR else build(display, options.scale, matcher)
        for display in options.figure
    ]
    options.output.mkdir(parents=True, exist_ok=True)
    where = ", ".join(map(str, options.runs)) or "no folder"
    print(f"{len(runs)} finished runs in {where}; tables and figures of scale {options.scale} in {options.output}")
    for table in tables:
        _write(table, options.output)
    for figure in figures:
        _write_figure(figure, options.output / FIGURES)
    faults = [f"{folder.folder}: {folder.reason}" for folder in aside if folder.is_fault]
    faults += [f"{table.definition.name}: {text}" for table in tables for cell in table for text in cell.problems]
    faults += [f"{figure.display.id}: {text}" for figure in figures for text in figure.problems]
    for fault in dict.fromkeys(faults):
        print(f"does not count: {fault}")
    empty = [(table.definition.name, table.definition.target) for table in tables if not table.num_filled]
    for figure in figures:
        if figure.rows.empty:
            empty.append((figure.display.id, ", ".join(run_targets(figure.display))))
    for name, target in empty if options.is_chosen else ():
        print(f"{name}: no finished run of scale {options.scale}; its runs: {target}")
    return int(bool(faults) or bool(options.is_chosen and empty))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_runs_argument(parser)
    parser.add_argument("--scale", "--tier", choices=SCALES, default="small", help="whose runs; scales are never mixed")
    parser.add_argument("--table", nargs="+", metavar="NAME", help="tables, by name or target")
    parser.add_argument("--figure", nargs="+", metavar="NAME", help="figures, by name or target; default: everything")
    parser.add_argument("--output", type=Path, default=Path("report"), help="folder of the tables; figures/ in it")
    options = parser.parse_args(arguments)
    options.runs = folders_of(options.runs, parser)
    check_output(options.output, parser, is_folder=True)
    options.is_chosen = bool(options.table or options.figure)
    try:
        known = [*displays("figure").values(), RADAR]
        options.figure = known if not options.is_chosen else called(options.figure or [], known, "figure")
        options.table = tables_of(options.table or ([] if options.is_chosen else list(table_definitions())))
    except ValueError as error:
        parser.error(str(error))
    return options


def _write(table: FilledTable, folder: Path) -> None:
    """Write one file per format, and say how full the table is."""
    for ending, render in FORMATS.items():
        write_atomically(folder / f"{table.definition.name}_{table.scale}.{ending}", render(table))
    num_cells = len(list(table))
    if table.num_filled:
        print(f"{table.definition.name}: {table.num_filled} of {num_cells} cells")


def _write_figure(figure: BuiltFigure, folder: Path) -> None:
    """Draw a figure that has a run, and say what it lacks."""
    if not figure.rows.empty:
        write(figure, folder)
        missing = f", {len(figure.missing)} places left out" if figure.missing else ""
        print(f"{figure.display.id}: drawn{missing}")


if __name__ == "__main__":
    sys.exit(main())
