"""A workspace and a report in Weights & Biases, as code: which panels show which of the mirrored keys.

``wandb_workspaces`` is imported when one is built. Building contacts nobody; saving does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wandb_workspaces.reports.v2 import Report
    from wandb_workspaces.workspaces import Workspace

NO_ENTITY = "the-account's-own"
"""Stands in a specification where nobody said whose it will be."""
PURPOSE = "One line per cell: the mean over its seeds, with their standard deviation. Written by code; a copy is yours."
OVER_SEEDS = {"groupby_aggfunc": "mean", "groupby_rangefunc": "stddev"}
"""A group of the table of runs is a cell, so this is the mean over its seeds, never one over cells."""
WEIGHTED = ("fedsaf_mse", "fedsaf_cosine", "fedsaf_gcsa", "fedsaf_rcsa")
LAMBDA, GAMMA = "alignment.proto_weight", "alignment.inst_weight"
COLUMNS = (
    "config:chosen_method.value",
    "config:chosen_alignment.value",
    "config:chosen_dataset.value",
    "config:stand_in_for.value",
    "config:partition.value.alpha",
    "config:tier.value",
    "summary:reported/best",
    "summary:reported/pooled",
    "summary:reported/sent_mib",
)
"""Columns of the table of runs, in which groups show the mean over their seeds."""
DARK_TO_LIGHT = ("#440154", "#21918c", "#fde725")


@dataclass(frozen=True)
class Scope:
    """Whose runs are shown, and which of them.

    Attributes:
        entity: user or team; None for the account's own.
        project: project name.
        tier: smoke, small or full, since numbers of different tiers are never compared; None for all, each cell
            still by itself.
        dataset: choice of the group ``dataset``; None for all, each cell still by itself.
    """

    entity: str | None
    project: str
    tier: str | None
    dataset: str | None

    @property
    def name(self) -> str:
        """What the views are called: the same scope replaces nothing, but is found beside its older self."""
        return " ".join(["FedSAF,", self.tier or "all", "runs", *([f"on {self.dataset}"] if self.dataset else [])])

    def filters(self, method: str | None = None) -> list[Any]:
        """Return the filters of a table of runs, maybe those of one method."""
        from wandb_workspaces import expr

        wanted = {"tier": self.tier, "chosen_dataset": self.dataset, "chosen_method": method}
        return [expr.Config(key) == value for key, value in wanted.items() if value is not None]


def workspace(scope: Scope) -> Workspace:
    """Return a workspace: one section per question, runs grouped by cell."""
    import wandb_workspaces.workspaces as ws
    from wandb_workspaces import expr

    axis = ws.SectionPanelSettings(x_axis="round")
    sections = [
        ws.Section(name=name, panels=panels(), is_open=True, panel_settings=axis) for name, panels in SECTIONS.items()
    ]
    return ws.Workspace(
        entity=scope.entity or NO_ENTITY,
        project=scope.project,
        name=scope.name,
        sections=sections,
        settings=ws.WorkspaceSettings(x_axis="round", max_runs=100),
        runset_settings=ws.RunsetSettings(
            filters=scope.filters(),
            groupby=[expr.Metric("Group")],
            order=[expr.Ordering(expr.Summary("reported/best"), ascending=False)],
            pinned_columns=list(COLUMNS),
        ),
    )


def report(scope: Scope) -> Report:
    """Return a report with the panels of the workspace, each section with the table of its runs.

    Weights mean something for one loss only, so their heat map is there once for each loss.
    """
    import wandb_workspaces.reports.v2 as wr

    def grid(panels: list[Any], method: str | None = None) -> wr.PanelGrid:
        # The project of a run set that names none is the report's; naming it would ask the server.
        runs = wr.Runset(
            name="cells",
            filters=scope.filters(method),
            groupby=["group"],
            order=[wr.OrderBy(wr.SummaryMetric("reported/best"), ascending=False)],
            pinned_columns=list(COLUMNS),
        )
        return wr.PanelGrid(runsets=[runs], panels=panels)

    blocks: list[Any] = [wr.TableOfContents(), wr.P(PURPOSE)]
    for name, panels in SECTIONS.items():
        blocks.append(wr.H2(name))
        if panels is not _weights:
            blocks.append(grid(panels()))
            continue
        for method in WEIGHTED:
            blocks += [wr.H3(method), grid(panels(), method)]
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


def _curves() -> list[Any]:
    import wandb_workspaces.reports.v2 as wr

    titles = {
        "reported/pooled": "accuracy by the method's own rule",
        "classifier/pooled": "accuracy of the classifiers",
        "nearest_prototype/pooled": "accuracy by nearest prototype",
        "loss/prototype_alignment": "alignment loss, prototype level",
        "loss/instance_alignment": "alignment loss, instance level",
        "loss/total": "training loss",
    }
    return [wr.LinePlot(title=title, x="round", y=[key], **OVER_SEEDS) for key, title in titles.items()]


def _best() -> list[Any]:
    import wandb_workspaces.reports.v2 as wr

    best = wr.BarPlot(
        title="best accuracy on the test parts", metrics=["reported/best"], max_bars_to_show=100, **OVER_SEEDS
    )
    return [best, wr.RunComparer(diff_only="split")]


def _clients() -> list[Any]:
    import wandb_workspaces.reports.v2 as wr

    bars = [
        wr.CustomChart(
            query={"summaryTable": {"tableKey": "clients"}},
            chart_name="wandb/bar/v0",
            chart_fields={"label": "client", "value": rule},
            chart_strings={"title": f"accuracy of each client after the last round, {rule.replace('_', ' ')}"},
        )
        for rule in ("classifier", "nearest_prototype")
    ]
    return [*bars, wr.WeavePanelSummaryTable(table_name="clients")]


def _weights() -> list[Any]:
    """Return a heat map of points on logarithmic axes, and parallel axes, which also show weights of 0."""
    import wandb_workspaces.reports.v2 as wr

    colours = [wr.GradientPoint(color=color, offset=50 * step) for step, color in enumerate(DARK_TO_LIGHT)]
    axes = {"lambda": LAMBDA, "gamma": GAMMA}
    columns = [wr.ParallelCoordinatesPlotColumn(wr.Config(key), display_name=name) for name, key in axes.items()]
    columns.append(wr.ParallelCoordinatesPlotColumn(wr.SummaryMetric("reported/best"), display_name="best accuracy"))
    heat = wr.ScatterPlot(
        title="best accuracy by lambda and gamma",
        x=wr.Config(LAMBDA),
        y=wr.Config(GAMMA),
        z=wr.SummaryMetric("reported/best"),
        log_x=True,
        log_y=True,
        gradient=colours,
    )
    return [heat, wr.ParallelCoordinatesPlot(columns=columns, title="weights and accuracy", gradient=colours)]


def _communication() -> list[Any]:
    import wandb_workspaces.reports.v2 as wr

    return [
        wr.ScatterPlot(
            title="MiB sent by clients and server, best accuracy",
            x=wr.SummaryMetric("reported/sent_mib"),
            y=wr.SummaryMetric("reported/best"),
            log_x=True,
        ),
        wr.LinePlot(
            title="accuracy over MiB sent",
            x="reported/sent_mib",
            y=["reported/pooled"],
            log_x=True,
            **OVER_SEEDS,
        ),
        wr.LinePlot(
            title="bytes of a round",
            x="round",
            y=["upload_bytes/total", "download_bytes/total"],
            log_y=True,
            **OVER_SEEDS,
        ),
    ]


SECTIONS: Mapping[str, Callable[[], list[Any]]] = {
    "Curves over rounds": _curves,
    "Best accuracy": _best,
    "Clients": _clients,
    "Weights of the two levels": _weights,
    "Communication against accuracy": _communication,
}
"""Panels of each section; their keys are those that the mirror logs."""
