"""Figures of a report: numbers from recorded runs, then a picture of just these numbers, then the files."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from fedsaf.core.files import write_atomically
from fedsaf.reproduction.collect import RecordedRun, SetAside
from fedsaf.reproduction.figures import drawing, maps
from fedsaf.reproduction.figures.definition import FigureDefinition
from fedsaf.reproduction.figures.embedding import embeddings
from fedsaf.reproduction.figures.numbers import Gatherer, Numbers, Row, client_bars, curves, gains, points
from fedsaf.reproduction.figures.radar import radar
from fedsaf.reproduction.figures.style import caption, style

Draw = Callable[[Figure, FigureDefinition, Numbers], None]
KINDS: Mapping[str, tuple[Callable[[Gatherer], Numbers], Draw]] = {
    "curves": (curves, drawing.draw_curves),
    "lines": (points, drawing.draw_lines),
    "pairs": (points, drawing.draw_pairs),
    "client_bars": (client_bars, drawing.draw_client_bars),
    "heat_maps": (gains, maps.draw_heat_maps),
    "embeddings": (embeddings, maps.draw_embeddings),
}
"""Of each kind of figure with runs of its own: where its numbers come from, and how they are drawn."""
NAMED_MISSING = 6
"""Missing places that the picture itself names; its page names all."""
ABOUT_KIND = {
    "pairs": "Hollow: its own alignment; filled: GCSA; above: the difference.",
    "heat_maps": "Blank: not run.",
    "radar": "Rim: the best method of the column; inwards: points below it.",
}


@dataclass(frozen=True)
class BuiltFigure:
    """A figure that is ready to be drawn.

    Attributes:
        definition: which one.
        scale: smoke, small or full.
        numbers: its content.
    """

    definition: FigureDefinition
    scale: str
    numbers: Numbers

    @property
    def is_empty(self) -> bool:
        """Whether no run has a place in it."""
        return not self.numbers.rows

    @property
    def file_name(self) -> str:
        """Name of its files, without an ending."""
        return f"{self.definition.name}_{self.scale}"


def build(
    definition: FigureDefinition, scale: str, runs: Sequence[RecordedRun], aside: Sequence[SetAside]
) -> BuiltFigure:
    """Return the numbers of a figure from recorded runs of one scale; scales are never mixed."""
    if definition.tables:
        return BuiltFigure(definition, scale, radar(definition, scale, runs, aside))
    numbers, _ = KINDS[definition.kind]
    return BuiltFigure(definition, scale, numbers(Gatherer(definition, scale, runs, aside)))


def draw(built: BuiltFigure, figure: Figure) -> None:
    """Draw onto an empty figure, with title and caption.

    Raises:
        ValueError: there is nothing to draw.
    """
    if built.is_empty:
        raise ValueError(f"{built.definition.name}: no finished run of scale {built.scale}")
    picture = maps.draw_radar if built.definition.tables else KINDS[built.definition.kind][1]
    with style():
        picture(figure, built.definition, built.numbers)
        caption(figure, built.definition.title, caption_text(built, NAMED_MISSING))


def write(built: BuiltFigure, folder: Path) -> None:
    """Write a figure as PDF and PNG, its numbers as CSV, and its page with the whole caption as Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    figure = Figure()
    draw(built, figure)
    with style():
        figure.savefig(folder / f"{built.file_name}.pdf", metadata={"CreationDate": None})
        figure.savefig(folder / f"{built.file_name}.png")
    write_atomically(folder / f"{built.file_name}.csv", comma_separated(built, built.numbers.rows))
    for name, rows in built.numbers.tables.items():
        write_atomically(folder / f"{built.file_name}_{name}.csv", comma_separated(built, rows))
    write_atomically(folder / f"{built.file_name}.md", page(built))


def comma_separated(built: BuiltFigure, rows: Sequence[Row]) -> str:
    """Return rows as CSV, numbers unrounded; an empty entry is unknown."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, ["figure", "scale", *columns], lineterminator="\n")
    writer.writeheader()
    writer.writerows({"figure": built.definition.name, "scale": built.scale, **row} for row in rows)
    return text.getvalue()


def page(built: BuiltFigure) -> str:
    """Return the picture with its caption, everything that is missing and every run that does not count."""
    numbers = built.numbers
    lines = [f"## {built.definition.title}", "", f"![{built.definition.title}]({built.file_name}.png)", ""]
    lines += [caption_text(built, 0), ""]
    lines += [f"- left out, no number: {name}" for name in numbers.missing]
    lines += [f"- {text}" for text in numbers.notes]
    lines += [f"- **does not count**: {text}" for text in numbers.problems]
    return "\n".join(lines).rstrip() + "\n"


def caption_text(built: BuiltFigure, named: int) -> str:
    """Return scale, what is shown, how many seeds, data that stand in, and what is left out, the first few by name."""
    numbers = built.numbers
    texts = [
        f"Scale {built.scale}. Shown: {numbers.shown}.",
        _seeds(numbers),
        ABOUT_KIND.get(built.definition.kind, ""),
    ]
    if any(row.get("best") for row in numbers.rows):
        texts.append("Stars: best round of the mean.")
    stand_ins = sorted({row["stand_in"] for row in numbers.rows} - {""})
    if stand_ins:
        count = "all" if all(row["stand_in"] for row in numbers.rows) else "some"
        texts.append(f"On {' and '.join(stand_ins)} in place of the data that are named ({count} numbers).")
    if numbers.missing:
        first = "; ".join(numbers.missing[:named])
        more = len(numbers.missing) - named
        names = f": {first}" + (f"; and {more} more" if more > 0 else "") if named else ""
        texts.append(f"Left out for want of runs, {len(numbers.missing)} in all{names}.")
    if numbers.problems:
        texts.append(f"{len(numbers.problems)} faults of runs are named on the figure's page.")
    return " ".join(text for text in texts if text)


def _seeds(numbers: Numbers) -> str:
    counts = sorted({row["n"] for row in numbers.rows if "n" in row})
    if not counts:
        return ""
    if counts[-1] == 1:
        return "One seed each (n = 1), hence no range."
    n = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    ranges = "; ranges go from the smallest to the largest" if any("low" in row for row in numbers.rows) else ""
    return f"Mean over n = {n} seeds{ranges}."
