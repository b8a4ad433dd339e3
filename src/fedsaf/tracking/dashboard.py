"""A workspace and a report in Weights & Biases, as code: which panels show which of the mirrored keys.

``wandb_workspaces`` is imported when one is built. Building contacts nobody; saving does.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsaf.core.config import nearest
from fedsaf.tracking.location import check_output, load_environment
from fedsaf.tracking.upload import service_problem

if TYPE_CHECKING:
    from wandb_workspaces.reports.v2 import Report
    from wandb_workspaces.workspaces import Workspace

SCALES = ("smoke", "small", "full")
NO_ENTITY = "the-account's-own"
"""Stands in a specification where nobody said whose it will be."""
PURPOSE = "One line per cell: the mean over its seeds, with their standard deviation. Written by code; a copy is yours."
OVER_SEEDS: dict[str, Any] = {"groupby_aggfunc": "mean", "groupby_rangefunc": "stddev"}
"""A group of the table of runs is a cell, so this is the mean over its seeds, never one over cells."""
BEST, SENT = "reported/best", "reported/sent_mib"
COLUMNS = (
    *(f"config:{key}.value" for key in ("chosen_method", "chosen_alignment", "chosen_dataset", "stand_in_for")),
    "config:partition.value.alpha",
    "config:scale.value",
    *(f"summary:{key}" for key in (BEST, "reported/pooled", SENT)),
)
"""Columns of the table of runs, in which groups show the mean over their seeds."""
CURVES = {
    "accuracy by the method's own rule": "reported/pooled",
    "accuracy of the classifiers": "classifier/pooled",
    "accuracy by nearest prototype": "nearest_prototype/pooled",
    "alignment loss, prototype level": "loss/prototype_alignment",
    "alignment loss, instance level": "loss/instance_alignment",
    "training loss": "loss/total",
}
WEIGHTS = "Weights of the two levels"
WEIGHTED = ("fedsaf_mse", "fedsaf_cosine", "fedsaf_gcsa", "fedsaf_rcsa")
LAMBDA_GAMMA = {"lambda": "alignment.proto_weight", "gamma": "alignment.inst_weight"}
DARK_TO_LIGHT = ("#440154", "#21918c", "#fde725")


@dataclass(frozen=True)
class Scope:
    """Whose runs are shown (no ``entity``: the account's own), and which: of a scale, a data set, or all.

    Numbers of different scales are never compared: with all shown, each cell is still by itself.
    """

    entity: str | None
    project: str
    scale: str | None
    dataset: str | None

    @property
    def name(self) -> str:
        """What the views are called: the same scope replaces nothing, but is found beside its older self."""
        return " ".join(["FedSAF,", self.scale or "all", "runs", *([f"on {self.dataset}"] if self.dataset else [])])

    def filters(self, method: str | None = None) -> list[Any]:
        """Return the filters of a table of runs, maybe those of one method."""
        from wandb_workspaces import expr

        wanted = {"scale": self.scale, "chosen_dataset": self.dataset, "chosen_method": method}
        return [expr.Config(key) == value for key, value in wanted.items() if value is not None]


def sections() -> dict[str, list[Any]]:
    """Return the panels of each section, one section per question; their keys are those that the mirror logs."""
    import wandb_workspaces.reports.v2 as wr

    best, sent = wr.SummaryMetric(BEST), wr.SummaryMetric(SENT)
    over = {"log_x": True, **OVER_SEEDS}
    bars = [
        wr.CustomChart(
            query={"summaryTable": {"tableKey": "clients"}},
            chart_name="wandb/bar/v0",
            chart_fields={"label": "client", "value": rule},
            chart_strings={"title": f"accuracy of each client after the last round, {rule.replace('_', ' ')}"},
        )
        for rule in ("classifier", "nearest_prototype")
    ]
    # A heat map of points on logarithmic axes, and parallel axes, which also show weights of 0.
    colours = [wr.GradientPoint(color=color, offset=50 * step) for step, color in enumerate(DARK_TO_LIGHT)]
    x, y = (wr.Config(key) for key in LAMBDA_GAMMA.values())
    axes: dict[str, Any] = dict(zip((*LAMBDA_GAMMA, "best accuracy"), (x, y, best), strict=True))
    columns = [wr.ParallelCoordinatesPlotColumn(axis, display_name=name) for name, axis in axes.items()]
    title = "best accuracy by lambda and gamma"
    heat = wr.ScatterPlot(title=title, x=x, y=y, z=best, log_x=True, log_y=True, gradient=colours)
    moved: list[Any] = ["upload_bytes/total", "download_bytes/total"]
    return {
        "Curves over rounds": [wr.LinePlot(title=t, x="round", y=[key], **OVER_SEEDS) for t, key in CURVES.items()],
        "Best accuracy": [
            wr.BarPlot(title="best accuracy on the test parts", metrics=[BEST], max_bars_to_show=100, **OVER_SEEDS),
            wr.RunComparer(diff_only="split"),
        ],
        "Clients": [*bars, wr.WeavePanelSummaryTable(table_name="clients")],
        WEIGHTS: [heat, wr.ParallelCoordinatesPlot(columns=columns, title="weights and accuracy", gradient=colours)],
        "Communication against accuracy": [
            wr.ScatterPlot(title="MiB sent by clients and server, best accuracy", x=sent, y=best, log_x=True),
            wr.LinePlot(title="accuracy over MiB sent", x=SENT, y=["reported/pooled"], **over),
            wr.LinePlot(title="bytes of a round", x="round", y=moved, log_y=True, **OVER_SEEDS),
        ],
    }


def workspace(scope: Scope) -> Workspace:
    """Return a workspace: one section per question, runs grouped by cell."""
    import wandb_workspaces.workspaces as ws
    from wandb_workspaces import expr

    options: dict[str, Any] = {"is_open": True, "panel_settings": ws.SectionPanelSettings(x_axis="round")}
    return ws.Workspace(
        entity=scope.entity or NO_ENTITY,
        project=scope.project,
        name=scope.name,
        sections=[ws.Section(name=name, panels=panels, **options) for name, panels in sections().items()],
        settings=ws.WorkspaceSettings(x_axis="round", max_runs=100),
        runset_settings=ws.RunsetSettings(
            filters=scope.filters(),
            groupby=[expr.Metric("Group")],
            order=[expr.Ordering(expr.Summary(BEST), ascending=False)],
            pinned_columns=list(COLUMNS),
        ),
    )


def report(scope: Scope) -> Report:
    """Return a report with the sections of the workspace, each with its runs; weights mean something by loss only."""
    import wandb_workspaces.reports.v2 as wr

    blocks: list[Any] = [wr.TableOfContents(), wr.P(PURPOSE)]
    for name, panels in sections().items():
        blocks.append(wr.H2(name))
        for method in WEIGHTED if name == WEIGHTS else (None,):
            # The project of a run set that names none is the report's; naming it would ask the server.
            runs = wr.Runset(
                name="cells",
                filters=scope.filters(method),
                groupby=["group"],
                order=[wr.OrderBy(wr.SummaryMetric(BEST), ascending=False)],
                pinned_columns=list(COLUMNS),
            )
            blocks += [wr.H3(method)] if method else []
            blocks.append(wr.PanelGrid(runsets=[runs], panels=panels))
    return wr.Report(
        entity=scope.entity or NO_ENTITY,
        project=scope.project,
        title=scope.name,
        description=PURPOSE,
        blocks=blocks,
        width="fluid",
    )


def specification(scope: Scope) -> dict[str, Any]:
    """Return what would be saved, as plain values: ``workspace`` and ``report``."""
    views = {"workspace": workspace(scope)._to_model(), "report": report(scope)._to_model()}
    return {name: view.model_dump(mode="json", by_alias=True, exclude_none=True) for name, view in views.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Save both views, or write what they would be; return the exit status."""
    load_environment()
    parser = argparse.ArgumentParser(description="Saves a workspace and a report of the mirrored runs in W&B.")
    parser.add_argument("--entity", default=os.environ.get("WANDB_ENTITY"), help="user or team; the account's own")
    parser.add_argument("--project", default=os.environ.get("WANDB_PROJECT", "fedsaf"), help="project (fedsaf)")
    scales = f"show runs of {', '.join(SCALES)}; '' for all (small)"
    parser.add_argument("--scale", "--tier", default="small", help=scales)
    parser.add_argument("--dataset", default=None, help="show runs on this data set alone")
    parser.add_argument("--dry-run", action="store_true", help="write the specification, contact nobody")
    parser.add_argument("--out", type=Path, default=Path("report/dashboard.json"), help="where --dry-run writes")
    options = parser.parse_args(arguments)
    if options.dry_run:
        check_output(options.out, parser)
    if options.scale and options.scale not in SCALES:
        sys.exit(f"error: --scale {options.scale} is unknown; {nearest(options.scale, SCALES)}")
    scope = Scope(options.entity, options.project, options.scale or None, options.dataset)
    try:
        if options.dry_run:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(specification(scope), indent=1) + "\n", encoding="utf-8")
            print(f"specification of the workspace and the report: {options.out}")
        elif problem := service_problem():
            sys.exit(f"error: {problem}; --dry-run writes the specification without W&B")
        else:
            import wandb

            scope = replace(scope, entity=scope.entity or wandb.Api().default_entity)
            print(workspace(scope).save().url, report(scope).save().url, sep="\n")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "wandb_workspaces":
            raise
        sys.exit("error: the package wandb-workspaces is missing; pip install -e '.[dashboard]' brings it")
    return 0
