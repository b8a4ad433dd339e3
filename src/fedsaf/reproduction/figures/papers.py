"""Figures of the papers: rows from recorded runs, then a picture of just these rows, then the files."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from fedsaf.core.files import replacing, write_atomically
from fedsaf.reproduction.comparable import comparable
from fedsaf.reproduction.experiments import Display
from fedsaf.reproduction.figures import pictures, values
from fedsaf.reproduction.figures.prototypes import MIN_ROWS, embed, local_prototypes, silhouettes
from fedsaf.reproduction.figures.style import caption, style
from fedsaf.reproduction.matching import Matcher
from fedsaf.reproduction.soundness import UnusableRun

HEAD = ["panel", "series", "stand_in"]
"""First columns of every row."""
ROLES = ("panels", "series", "points")
NAMED_MISSING = 6
"""Missing places that the picture itself names; its page names all."""
ACCURACY = "{rule} accuracy, pooled over clients, on the test parts"
SHOWN = {
    "accuracy": ACCURACY,
    "best": f"{ACCURACY}, best round, in %",
    "last": f"{ACCURACY}, last round, in %",
    "effective_dimension": "number of directions that hold 90 % of the squared singular values of the clients' stacked "
    "prototypes, rows normalised and centred",
    "margins": "distance of a class's prototype to the nearest other one, mean over classes: of the server's "
    "prototypes, and of the client for which it is largest in that round",
    "client_bars": "{rule} accuracy in % of each client on its test part, in the round of the best pooled accuracy",
    "heat_maps": f"gain in points over both weights 0, same seed, in {ACCURACY}, best round",
    "embeddings": "t-SNE (perplexity min(30, n - 1), random state 42) of all local prototypes of the last round, first "
    "seed; silhouettes between the prototypes themselves, Euclidean",
    "radar": "points below the best method of each column, in the accuracies of the tables",
}
"""What a figure shows, by its kind or else by its number."""
HOW_TO_READ = {
    "pairs": "Hollow: its own alignment; filled: GCSA; above: the difference.",
    "heat_maps": "Blank: not run.",
    "radar": "Rim: the best method of the column; inwards: points below it.",
}
LABELS = {"accuracy": "accuracy in %", "effective_dimension": "effective dimensions", "margins": "margin"}
TAKE = {
    "accuracy": values.accuracies,
    "best": values.best,
    "last": values.last,
    "effective_dimension": partial(values.diagnosed, key="effective_dimension"),
    "margins": values.margins,
}


@dataclass
class BuiltFigure:
    """A figure that is ready to be drawn.

    Attributes:
        display: which one.
        scale: smoke, small or full.
        rows: what is drawn.
        tables: further rows that go with it, by name.
        order: by column, its names or swept values in their order, whether a row has them or not.
        shown: what the numbers are.
        missing: places without a number, which are left out.
        notes: what a reader should know.
        problems: why runs that seem to belong here do not count.
    """

    display: Display
    scale: str
    rows: pd.DataFrame = field(default_factory=pd.DataFrame)
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    order: dict[str, list[Any]] = field(default_factory=dict)
    shown: str = ""
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """How it is drawn."""
        return self.display.node["kind"]

    @property
    def file_name(self) -> str:
        """Name of its files, without an ending."""
        return f"{self.display.id}_{self.scale}"


def build(display: Display, scale: str, matcher: Matcher) -> BuiltFigure:
    """Return a figure with its rows, from recorded runs of one scale; scales are never mixed."""
    built, rule = BuiltFigure(display, scale), display.node["rule"]
    places, rounds = _places(built, matcher), matcher.records.frame
    rounds = rounds[rounds["reported"] if rule in ("", "reported") else rounds["predictor"] == rule]
    placed = places.merge(rounds.drop(columns="seed"), on="folder")
    if built.kind == "embeddings":
        _embed(built, places)
    elif len(places):
        _fill(built, places, placed)
    rules = " or ".join(sorted(placed["predictor"].unique())).replace("_", " ")
    built.shown = (SHOWN.get(built.kind) or SHOWN[display.node["shows"]]).format(rule=rules or rule)
    return built


def _places(built: BuiltFigure, matcher: Matcher) -> pd.DataFrame:
    """Return a row per place and run; note what is missing, wrong or worth knowing."""
    rows, panels = [], {}
    places = list(built.display.places(ROLES, built.scale))
    panel_names = list(dict.fromkeys(place.name("panels") for place in places))
    for place in sorted(places, key=lambda place: panel_names.index(place.name("panels"))):
        found, points = matcher.find(place.cell), place.roles["points"]
        if built.kind == "pairs":
            points = {"point": place.name("points")}
            named = list(points.values())
        else:
            points = {axis: json.loads(label) for axis, label in points.items()}
            named = [f"{axis}={value:g}" for axis, value in points.items()]
        where = {"panel": place.name("panels"), "series": place.name("series"), **points}
        name = ", ".join(text for text in (where["panel"], where["series"], *named) if text)
        for column, value in where.items():
            order = built.order.setdefault(column, [])
            order += [value] * (value not in order)
        built.notes += [f"{name}: {text}" for text in found.notes]
        built.problems += [f"{name}: {text}" for text in found.problems]
        built.missing += [] if found.runs else [name]
        where |= {"stand_in": found.stand_in, "part": place.part, "place": name}
        rows += [where | {"folder": str(run.folder), "seed": run.seed} for run in found.runs]
        panels.setdefault((where["panel"], found.stand_in), []).extend(run.config for run in found.runs)
    for (panel, _), configs in panels.items():
        if different := comparable(configs, named_keys(built.display)):
            head = f"{panel}: " if panel else ""
            built.notes.append(f"{head}no fair comparison: run with different {', '.join(different)}")
    return pd.DataFrame(rows, columns=None if rows else [*HEAD, "place", "folder", "seed"])


def named_keys(display: Display) -> list[str]:
    """Return the keys in which runs of a panel may differ: what series and points name, and what differs on purpose."""
    swept = [key for block in display.blocks for role in ("series", "points") for key in block.node.get(role, [])]
    return [*swept, *display.node.get("differs", [])]


def _fill(built: BuiltFigure, places: pd.DataFrame, placed: pd.DataFrame) -> None:
    """Take the values of all runs and their spread over seeds; note which are not there."""
    shows, swept = built.display.node["shows"], [key for key in built.order if key not in HEAD]
    by = [*HEAD, *swept]
    if built.kind == "client_bars":
        found = values.of_clients(placed)
        built.rows = values.spread(found, [*by, "client", "architecture"])
        without = found.groupby(["place", "client"], sort=False)["value"].count()
        built.missing += [
            f"{place}, client {client} (no test samples)" for place, client in without.index[without == 0]
        ]
    elif built.kind == "heat_maps":
        found = values.gains(placed, swept)
        built.rows = values.spread(found, by).join(found.groupby(by)["accuracy"].mean(), on=by)
        for panel, own in found.groupby("panel", sort=False):
            known = own.groupby("place", sort=False)["value"].count()
            if known.any():
                text = "no run with both weights 0 on the same data and seed"
                built.missing += [f"{place} ({text})" for place in known.index[known == 0]]
            else:
                built.problems.append(f"{panel}: no run with both weights 0, so no gain is known")
    else:
        found = TAKE[shows](placed)
        lines = built.kind == "curves"
        built.rows = values.shared_rounds(found, by, shows == "accuracy") if lines else values.spread(found, by)
    with_number = set(zip(found["place"], found["folder"], strict=True))
    for place, folders in places.groupby("place", sort=False)["folder"]:
        without = [Path(folder).name for folder in folders if (place, folder) not in with_number]
        built.problems += [f"{place}: {name} has no number of this kind" for name in without]
        built.missing += [place] if len(without) == len(folders) else []


def _embed(built: BuiltFigure, places: pd.DataFrame) -> None:
    """Take coordinates of every prototype of the first seed of each panel, and the silhouettes of all seeds."""
    rows, measured = [], []
    for place, runs in places.groupby("place", sort=False):
        drawn = None
        for run in runs.to_dict("records"):
            head = {key: run[key] for key in (*HEAD, "seed")}
            try:
                local = local_prototypes(Path(run["folder"]))
            except UnusableRun as error:
                built.problems.append(f"{place}: {error}")
                continue
            measured.append(head | silhouettes(local) | {"num_prototypes": len(local.means)})
            if drawn is None and len(local.means) >= MIN_ROWS:
                drawn = embed(local)
                rows.append(pd.DataFrame(head, index=drawn.index).join(drawn))
        built.missing += [place] if drawn is None else []
    built.rows = pd.concat(rows, ignore_index=True) if rows else built.rows
    built.tables["silhouettes"] = pd.DataFrame(measured)


def draw(built: BuiltFigure, figure: Figure) -> None:
    """Draw onto an empty figure, with title and caption.

    Raises:
        ValueError: there is nothing to draw.
    """
    if built.rows.empty:
        raise ValueError(f"{built.display.id}: no finished run of scale {built.scale}")
    rows, series = built.rows, built.order["series"]
    points = {key: all for key, all in built.order.items() if key not in HEAD}
    match built.kind:
        case "curves":
            panel = partial(pictures.curve_panel, label=LABELS[built.display.node["shows"]])
            pictures.draw_panels(figure, rows, series, panel)
        case "lines":
            ((swept, all),) = points.items()
            pictures.draw_panels(figure, rows, series, partial(pictures.line_panel, swept=swept, values=all))
        case "pairs":
            pictures.draw_panels(figure, rows, series, partial(pictures.pair_panel, points=points["point"]))
        case "client_bars":
            pictures.draw_panels(figure, rows, series, pictures.bar_panel, columns=1, size=(7.7, 2.7))
        case "heat_maps":
            panel = partial(pictures.heat_panel, swept=points, limit=rows["mean"].abs().max() or 1.0)
            axes = pictures.draw_panels(figure, rows, series, panel, size=(4.2, 3.15))
            figure.colorbar(axes[0].collections[0], ax=axes, label="gain in points")
        case "embeddings":
            twice = pictures.numbered(rows, built.tables["silhouettes"])
            pictures.draw_panels(figure, twice, series, pictures.embedding_panel, columns=rows["panel"].nunique())
        case "radar":
            layout = {"columns": 1, "size": (6.2, 6.2), "subplot_kw": {"projection": "polar"}}
            pictures.draw_panels(figure, rows, series, pictures.radar_panel, **layout)
    with style():
        caption(figure, built.display.title, caption_text(built, NAMED_MISSING))


def write(built: BuiltFigure, folder: Path) -> None:
    """Write a figure as PDF and PNG, its rows as CSV, and its page with the whole caption as Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    figure = Figure()
    draw(built, figure)
    for ending, metadata in (("pdf", {"CreationDate": None}), ("png", {})):
        with style(), replacing(folder / f"{built.file_name}.{ending}") as aside:
            figure.savefig(aside, format=ending, metadata=metadata)
    for name, rows in {"": built.rows, **{f"_{name}": rows for name, rows in built.tables.items()}}.items():
        whole = pd.concat(
            [pd.DataFrame({"figure": built.display.id, "scale": built.scale}, index=rows.index), rows], axis=1
        )
        write_atomically(folder / f"{built.file_name}{name}.csv", whole.to_csv(index=False, lineterminator="\n"))
    write_atomically(folder / f"{built.file_name}.md", page(built))


def page(built: BuiltFigure) -> str:
    """Return the picture with its caption, everything that is missing and every run that does not count."""
    title = built.display.title
    lines = [f"## {title}", "", f"![{title}]({built.file_name}.png)", "", caption_text(built, 0), ""]
    lines += [f"- left out, no number: {name}" for name in built.missing]
    lines += [f"- {text}" for text in built.notes]
    lines += [f"- **does not count**: {text}" for text in built.problems]
    return "\n".join(lines).rstrip() + "\n"


def caption_text(built: BuiltFigure, named: int) -> str:
    """Return scale, what is shown, how many seeds, data that stand in, and what is left out, the first few by name."""
    rows, missing = built.rows, built.missing
    texts = [f"Scale {built.scale}. Shown: {built.shown}.", _seeds(rows), HOW_TO_READ.get(built.kind, "")]
    texts.append("Stars: best round of the mean." if "best" in rows and rows["best"].any() else "")
    if stand_ins := sorted(set(rows.get("stand_in", ())) - {""}):
        count = "all" if (rows["stand_in"] != "").all() else "some"
        texts.append(f"On {' and '.join(stand_ins)} in place of the data that are named ({count} numbers).")
    if missing:
        more = [f"and {len(missing) - named} more"] if len(missing) > named else []
        names = f": {'; '.join([*missing[:named], *more])}" if named else ""
        texts.append(f"Left out for want of runs, {len(missing)} in all{names}.")
    if built.problems:
        texts.append(f"{len(built.problems)} faults of runs are named on the figure's page.")
    return " ".join(text for text in texts if text)


def _seeds(rows: pd.DataFrame) -> str:
    if "n" not in rows:
        return ""
    low, high = rows["n"].min(), rows["n"].max()
    if high == 1:
        return "One seed each (n = 1), hence no range."
    ranges = "; ranges go from the smallest to the largest" if "low" in rows else ""
    return f"Mean over n = {low if low == high else f'{low} to {high}'} seeds{ranges}."
