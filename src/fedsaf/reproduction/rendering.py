"""Filled tables as text: Markdown for reading, CSV for counting, LaTeX for printing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from fedsaf.reproduction.paper import AXES
from fedsaf.reproduction.tabulating import COLUMN, ROW, Table

RANKS = {1: "¹", 2: "²", 3: "³"}
LATEX_RANKS = {1: r"\textbf", 2: r"\underline", 3: r"\textit"}
LATEX = str.maketrans(
    {
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
)
NUMBERS = ("mean", "std", "n", "low", "high")


def markdown(table: Table) -> str:
    """Return the table as Markdown: ours, the paper's number, the difference; marks ¹ ² ³ for the best of a column."""
    cells = grid(table, lambda cell: "<br>".join(cell_parts(cell)).replace("|", "\\|"))
    texts = [f"- {where}: {'**does not count**: ' * is_problem}{text}" for where, text, is_problem in remarks(table)]
    body = cells.rename_axis(index=None).to_markdown(disable_numparse=True)
    return (
        "\n".join([f"## {table.display.title}", "", caption(table), "", body, *([""] if texts else []), *texts]) + "\n"
    )


def comma_separated(table: Table) -> str:
    """Return the table as CSV, one line per cell, numbers unrounded."""
    cells, papers = table.cells, table.cells["paper"]
    frame = cells[[*AXES]].copy()
    frame.insert(0, "table", table.display.id)
    frame.insert(1, "scale", table.scale)
    frame["shown"] = table.shown
    frame["unit"] = [table.number.unit or (paper.unit if paper else "") for paper in papers]
    frame[[*NUMBERS]] = cells[[*NUMBERS]]
    frame["paper_mean"], frame["paper_std"] = (
        [paper and getattr(paper, key) for paper in papers] for key in ("mean", "std")
    )
    frame[["difference", "rank", "stand_in"]] = cells[["difference", "rank", "stand_in"]]
    frame["runs"] = cells["members"].map(lambda runs: "; ".join(run.folder.name for run in runs))
    frame[["notes", "problems"]] = cells[["notes", "problems"]].map("; ".join)
    return frame.to_csv(index=False)


def latex(table: Table) -> str:
    """Return the table as a LaTeX ``table`` (package booktabs): best bold, second underlined, third in italics."""
    cells = grid(table, _latex_cell)
    cells.index = cells.index.map(_escape)
    cells.columns = [_stack([_escape(part) for part in name.split(", ")]) for name in cells.columns]
    text = _escape(f"{table.display.title}. {caption(table, ranks='bold, underlined, italics')}")
    return cells.rename_axis(index=None).to_latex(caption=text, column_format="l" + "c" * len(cells.columns))


def grid(table: Table, show: Callable[[dict[str, Any]], str]) -> pd.DataFrame:
    """Return the cells as they stand on paper, each as ``show`` has it; empty where the definition has none."""
    shown = pd.Series([show(cell) for cell in table.cells.to_dict("records")], [table.cells[ROW], table.cells[COLUMN]])
    rows, columns = (table.cells[role].unique() for role in (ROW, COLUMN))
    return shown.unstack(fill_value="").reindex(index=rows, columns=columns)


def caption(table: Table, ranks: str = "¹ ² ³") -> str:
    """Return what stands under the title: scale, what a cell shows, and how to read it."""
    unit = f" in {table.number.unit}" if table.number.unit else ""
    compared = "; the difference is ours minus the paper's" if table.scale == "full" else ""
    paper = f" With {' '.join(table.words)}, so no printed number." if table.words else f" Paper: as printed{compared}."
    marks = f" Best three of a column: {ranks}." if table.number.best else ""
    return (
        f"Scale {table.scale}. Shown: {table.shown}{unit}; mean ± std over n seeds (divided by n), in brackets the "
        f"95 % interval of the mean by Student's t; one seed has neither.{paper}{marks} Empty: not run."
    )


def remarks(table: Table) -> list[tuple[str, str, bool]]:
    """Return what is said about cells: which ones, the text, and whether it is why a run does not count.

    What is said about several cells alike stands there once.
    """
    named = table.cells["place"].map(str)
    found = []
    for column in ("notes", "problems"):
        texts = table.cells[column].explode().dropna()
        for text, places in named[texts.index].groupby(texts.to_numpy(), sort=False):
            more = f" and {len(places) - 1} more" * (len(places) > 1)
            found.append((f"{places.iloc[0]}{more}", text, column == "problems"))
    return found


def cell_parts(cell: dict[str, Any]) -> list[str]:
    """Return the lines of a cell: ours, data that stand in, the paper's, the difference; [] if there is none."""
    digits, parts = _digits(cell), []
    if cell["n"]:
        bounds = "" if pd.isna(cell["low"]) else f", [{cell['low']:.{digits}f}, {cell['high']:.{digits}f}]"
        rank = "" if pd.isna(cell["rank"]) else RANKS[cell["rank"]]
        parts.append(f"{_ours(cell)}{rank} (n={cell['n']}{bounds})")
        parts += [f"on {cell['stand_in']}"] if cell["stand_in"] else []
    parts += [f"paper {cell['paper'].text}"] if cell["paper"] else []
    if not pd.isna(cell["difference"]):
        parts.append(f"difference {cell['difference']:+.{digits}f}".replace("-", "−"))
    return parts


def _latex_cell(cell: dict[str, Any]) -> str:
    parts = [_escape(part) for part in cell_parts(cell)]
    if not pd.isna(cell["rank"]):
        ours = _escape(_ours(cell))
        parts[0] = parts[0].replace(ours + RANKS[cell["rank"]], f"{LATEX_RANKS[cell['rank']]}{{{ours}}}")
    return _stack(parts)


def _ours(cell: dict[str, Any]) -> str:
    deviation = "" if pd.isna(cell["std"]) else f" ± {cell['std']:.{_digits(cell)}f}"
    return f"{cell['mean']:.{_digits(cell)}f}{deviation}"


def _digits(cell: dict[str, Any]) -> int:
    """Return the decimals: as many as the paper prints, at least two."""
    return max(2, len(cell["paper"].mean.partition(".")[2])) if cell["paper"] else 2


def _stack(parts: list[str]) -> str:
    stacked = r" \\ ".join(parts)
    return stacked if len(parts) < 2 else rf"\shortstack{{{stacked}}}"


def _escape(text: str) -> str:
    return text.translate(LATEX)
