"""One self-contained page of everything that was recorded: claims, tables, figures and runs. It needs no network."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from matplotlib.figure import Figure

from fedsaf.reproduction.claims.definition import claim_definitions
from fedsaf.reproduction.claims.judging import Judged, judge_all
from fedsaf.reproduction.claims.text import counts
from fedsaf.reproduction.collect import RecordedRun, SetAside
from fedsaf.reproduction.experiments import displays
from fedsaf.reproduction.figures.papers import BuiltFigure, build, caption_text, draw
from fedsaf.reproduction.figures.radar import RADAR, build_radar
from fedsaf.reproduction.figures.style import style
from fedsaf.reproduction.matching import Matcher
from fedsaf.reproduction.page.views import RUN_HEADINGS, View, aside_view, claim_view, run_view, table_view
from fedsaf.reproduction.selection import SCALES, table_definitions
from fedsaf.reproduction.tables import FilledTable, fill


def page(runs: Sequence[RecordedRun], aside: Sequence[SetAside], matcher: Matcher) -> tuple[str, list[str]]:
    """Return the page as HTML, and the faults of runs that it names.

    A table or figure stands there once for each scale that has runs of it; a table without any shows what is printed.

    Args:
        runs: recorded runs.
        aside: folders that do not count.
        matcher: finds the runs of figures.
    """
    scales = [scale for scale in SCALES if any(run.config.get("scale") == scale for run in runs)]
    tables = list(_tables(scales, runs, aside))
    figures = [build(one, scale, matcher) for one in displays("figure").values() for scale in scales]
    figures += [build_radar(scale, runs, aside) for scale in scales]
    judged = judge_all(claim_definitions().values(), scales or SCALES[-1:], runs, aside)
    faults = _faults(aside, tables, figures, judged)
    drawn = [figure for figure in figures if not figure.rows.empty]
    names = {figure.display.id for figure in drawn}
    text = _template().render(
        css=_part("page.css"),
        script=_part("page.js"),
        scales=scales,
        faults=faults,
        counts=counts(judged),
        claims=[claim_view(one) for one in judged],
        tables=[table_view(table) for table in tables],
        figures=[_figure_view(figure) for figure in drawn],
        not_drawn=[one.title for one in (*displays("figure").values(), RADAR) if one.id not in names],
        run_headings=RUN_HEADINGS,
        runs=[run_view(run) for run in runs],
        aside=[aside_view(folder) for folder in aside],
    )
    return text, faults


def _tables(scales: Sequence[str], runs: Sequence[RecordedRun], aside: Sequence[SetAside]) -> Iterator[FilledTable]:
    for definition in table_definitions().values():
        filled = [fill(definition, scale, runs, aside) for scale in scales or SCALES[-1:]]
        yield from [table for table in filled if table.num_filled] or filled[-1:]


def _faults(
    aside: Sequence[SetAside], tables: Sequence[FilledTable], figures: Sequence[BuiltFigure], judged: Sequence[Judged]
) -> list[str]:
    """Return every fault once, with the tables, figures and claims in which it leaves a gap."""
    found = {f"{folder.folder}: {folder.reason}": dict[str, None]() for folder in aside if folder.is_fault}
    places = [(table.definition.name, text) for table in tables for cell in table for text in cell.problems]
    places += [(figure.display.id, text) for figure in figures for text in figure.problems]
    places += [(one.claim.name, text) for one in judged for effect in one.effects for text in effect.problems]
    for place, text in places:
        found.setdefault(text, {})[place] = None
    return [f"{text} (in {', '.join(names)})" if names else text for text, names in found.items()]


def _figure_view(built: BuiltFigure) -> View:
    figure, picture = Figure(), io.BytesIO()
    draw(built, figure)
    with style():
        figure.savefig(picture, format="svg", metadata={"Date": None})
    return {
        "id": f"{built.display.id}-{built.scale}",
        "title": built.display.title,
        "scale": built.scale,
        "caption": caption_text(built, 0),
        "picture": base64.b64encode(picture.getvalue()).decode("ascii"),
    }


def _template():
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_part("page.html.j2"))


def _part(name: str) -> str:
    return files("fedsaf.reproduction.page").joinpath(name).read_text(encoding="utf-8")
