"""What a target needs before anything starts: cells, runs, hours, bytes, disk; and how far it is."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from fedsaf.rebuild.probe import RunCost, kind_of
from fedsaf.rebuild.sweep import PlannedRun
from fedsaf.results.recorder import SUMMARY, read_json


@dataclass(frozen=True)
class Plan:
    """How a target stands.

    Attributes:
        target: its name.
        tier: smoke, small or full.
        runs: all its runs.
    """

    target: str
    tier: str
    runs: Sequence[PlannedRun]

    @property
    def missing(self) -> list[PlannedRun]:
        """Runs without a result."""
        return [run for run in self.runs if not run.is_finished]

    @property
    def num_cells(self) -> int:
        """How many runs there are if seeds do not count."""
        return len({(run.experiment, *(word for word in run.own if not word.startswith("seed="))) for run in self.runs})


def plan_table(plan: Plan, costs: dict[tuple[str, ...], RunCost] | None, jobs: int) -> Table:
    """Return the plan as a table of two columns.

    Args:
        plan: of one target.
        costs: measured cost of a run by kind; None takes the hours that finished runs of the same kind took.
        jobs: runs side by side.
    """
    missing = plan.missing
    table = Table(title=f"{plan.target}, tier {plan.tier}", show_header=False)
    table.add_row("cells", str(plan.num_cells))
    table.add_row("runs", f"{len(plan.runs)}: {len(plan.runs) - len(missing)} done, {len(missing)} to do")
    stand_ins = sorted({run.config["stand_in_for"] for run in plan.runs if run.config["stand_in_for"]})
    if stand_ins:
        table.add_row("stand-ins", f"embedded data take the place of {', '.join(stand_ins)}; such numbers are labelled")
    if costs is None:
        table.add_row("expected time", _expected(plan.runs, missing, jobs))
        return table
    known = [costs[kind_of(run)] for run in missing]
    hours = sum(cost.hours for cost in known)
    table.add_row(
        "hours on this machine", f"{hours:.2f} one after another, {hours / jobs:.2f} with {jobs} side by side"
    )
    table.add_row("sent by clients and server", f"{sum(cost.sent_bytes for cost in known) / 2**30:.2f} GiB")
    largest = max((cost.disk_bytes for cost in known), default=0.0)
    total = sum(cost.disk_bytes for cost in known)
    table.add_row("disk", f"{total / 2**30:.2f} GiB with all checkpoints, {largest / 2**30:.2f} GiB the largest run")
    return table


def _expected(runs: Sequence[PlannedRun], missing: Sequence[PlannedRun], jobs: int) -> str:
    """Say how long the missing runs will take, from finished ones of the same kind."""
    took: dict[tuple[str, ...], list[float]] = {}
    for run in runs:
        if run.is_finished:
            seconds = (read_json(run.folder / SUMMARY) or {}).get("seconds", {})
            took.setdefault(kind_of(run), []).append(seconds.get("total", 0.0))
    if not missing:
        return "nothing is left to do"
    known = [statistics.median(took[kind_of(run)]) for run in missing if kind_of(run) in took]
    if not known:
        return "unknown before the first run; `make plan` measures it"
    minutes = sum(known) / len(known) * len(missing) / 60
    return f"{minutes / jobs:.1f} minutes with {jobs} side by side, as long as the finished runs of these kinds took"
