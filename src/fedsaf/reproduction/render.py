"""Filled tables as text: Markdown for reading, CSV for counting, LaTeX for printing."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from fedsaf.reproduction.paper import AXES
from fedsaf.reproduction.selection import Labels
from fedsaf.reproduction.tables import Cell, FilledTable

RANKS = {1: "¹", 2: "²", 3: "³"}
LATEX_RANKS = {1: r"\textbf", 2: r"\underline", 3: r"\textit"}
LATEX = {
    "\\": r"\textbackslash{}",
    "%": r"\%",
    "_": r"\_",
    "&": r"\&",
    "#": r"\#",
    "±": r"$\pm$",
    "−": "$-$",
    "^": r"\^{}",
    "<": "$<$",
    ">": "$>$",
}


def markdown(table: FilledTable) -> str:
    """Return the table as Markdown: ours, the paper's number, the difference; marks ¹ ² ³ for the best of a column."""
    head = ["", *headings(table)]
    lines = [f"## {table.definition.title}", "", caption(table), "", _line(head), _line(["---"] * len(head))]
    for labels, row in zip(table.definition.rows, table.cells, strict=True):
        lines.append(_line([label_of(labels), *("<br>".join(cell_parts(cell)) for cell in row)]))
    texts = [f"- {where}: {'**does not count**: ' * is_problem}{text}" for where, text, is_problem in remarks(table)]
    return "\n".join([*lines, *([""] if texts else []), *texts]) + "\n"


def remarks(table: FilledTable) -> list[tuple[str, str, bool]]:
    """Return what is said about cells: which ones, the text, and whether it is why a run does not count.

    What is said about several cells alike stands there once.
    """
    found: dict[tuple[str, bool], list[str]] = {}
    for cell in table:
        for texts, is_problem in ((cell.notes, False), (cell.problems, True)):
            for text in texts:
                found.setdefault((text, is_problem), []).append(cell_name(cell))
    return [
        (names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more", text, is_problem)
        for (text, is_problem), names in found.items()
    ]


def comma_separated(table: FilledTable) -> str:
    """Return the table as CSV, one line per cell, numbers unrounded."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    numbers = ("mean", "std", "n", "low", "high", "paper_mean", "paper_std", "difference", "rank", "stand_in")
    writer.writerow(("table", "scale", *AXES, "shown", "unit", *numbers, "runs", "notes", "problems"))
    for cell in table:
        ours, paper = cell.ours, cell.paper
        low, high = (ours.interval if ours else None) or ("", "")
        unit = table.definition.measure.unit or (paper.unit if paper else "")
        writer.writerow(
            (
                table.definition.name,
                table.scale,
                *(cell.labels[axis] for axis in AXES),
                table.shown,
                unit,
                *((ours.mean, ours.std, ours.n) if ours else ("", "", 0)),
                low,
                high,
                *((paper.mean, paper.std) if paper else ("", "")),
                "" if cell.difference is None else cell.difference,
                cell.rank or "",
                cell.stand_in,
                *("; ".join(texts) for texts in (cell.runs, cell.notes, cell.problems)),
            )
        )
    return text.getvalue()


def latex(table: FilledTable) -> str:
    """Return the table as a LaTeX ``table`` (package booktabs): best bold, second underlined, third in italics."""
    text = f"{table.definition.title}. {caption(table, ranks='bold, underlined, italics')}"
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_escape(text)}}}",
        rf"\begin{{tabular}}{{l{'c' * len(table.definition.columns)}}}",
        r"\toprule",
        " & ".join(["", *(_stack(heading.split(", ")) for heading in headings(table))]) + r" \\",
        r"\midrule",
    ]
    for labels, row in zip(table.definition.rows, table.cells, strict=True):
        lines.append(" & ".join([_escape(label_of(labels)), *(_latex_cell(cell) for cell in row)]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def caption(table: FilledTable, ranks: str = "¹ ² ³") -> str:
    """Return what stands under the title: scale, what a cell shows, and how to read it."""
    unit = f" in {table.definition.measure.unit}" if table.definition.measure.unit else ""
    compared = "; the difference is ours minus the paper's" if table.scale == "full" else ""
    marks = f" Best three of a column: {ranks}." if table.definition.measure.best else ""
    return (
        f"Scale {table.scale}. Shown: {table.shown}{unit}; mean ± std over n seeds (divided by n), in brackets the "
        f"95 % interval of the mean by Student's t. Paper: as printed{compared}.{marks} Empty: not run."
    )


def headings(table: FilledTable) -> list[str]:
    """Return what tells each column apart."""
    columns = table.definition.columns
    varying = [axis for axis in AXES if len({column.get(axis) for column in columns}) > 1]
    return [label_of({axis: column[axis] for axis in varying if axis in column} or column) for column in columns]


def label_of(labels: Labels) -> str:
    """Return labels as one name."""
    return ", ".join(label for label in labels.values() if label) or "all"


def cell_parts(cell: Cell) -> list[str]:
    """Return the lines of a cell: ours, data that stand in, the paper's, the difference; [] if there is none."""
    parts = []
    if cell.ours is not None:
        interval = cell.ours.interval
        bounds = f", [{', '.join(_number(cell, bound) for bound in interval)}]" if interval else ""
        parts.append(f"{_ours(cell)}{RANKS.get(cell.rank, '')} (n={cell.ours.n}{bounds})")
        if cell.stand_in:
            parts.append(f"on {cell.stand_in}")
    if cell.paper is not None:
        parts.append(f"paper {cell.paper.text}")
    if cell.difference is not None:
        parts.append(f"difference {cell.difference:+.{_digits(cell)}f}".replace("-", "−"))
    return parts


def _latex_cell(cell: Cell) -> str:
    parts = [_escape(part) for part in cell_parts(cell)]
    if cell.rank in LATEX_RANKS:
        head = _escape(_ours(cell))
        parts[0] = parts[0].replace(head + RANKS[cell.rank], f"{LATEX_RANKS[cell.rank]}{{{head}}}")
    return _stack_escaped(parts)


def _ours(cell: Cell) -> str:
    return f"{_number(cell, cell.ours.mean)} ± {_number(cell, cell.ours.std)}"


def _number(cell: Cell, value: float) -> str:
    return f"{value:.{_digits(cell)}f}"


def _digits(cell: Cell) -> int:
    """Return the decimals: as many as the paper prints, at least two."""
    return max(2, len(cell.paper.mean.partition(".")[2])) if cell.paper else 2


def cell_name(cell: Cell) -> str:
    """Return what a message calls a cell."""
    return ", ".join(label for label in cell.labels.values() if label)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _stack(parts: Sequence[str]) -> str:
    return _stack_escaped([_escape(part) for part in parts])


def _stack_escaped(parts: Sequence[str]) -> str:
    stacked = r" \\ ".join(parts)
    return stacked if len(parts) < 2 else rf"\shortstack{{{stacked}}}"


def _escape(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text)
