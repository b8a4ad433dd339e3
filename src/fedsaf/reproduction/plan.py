"""What a target needs before anything starts: cells, runs, hours, bytes, disk; and how far it is."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedsaf.core.files import read_json
from fedsaf.reproduction.cell import Cell
from fedsaf.reproduction.composer import Composer
from fedsaf.reproduction.probe import RunCost, kind_of, probed_costs
from fedsaf.tracking.recorder import SUMMARY


@dataclass(frozen=True)
class Plan:
    """How a target stands.

    Attributes:
        target: its name.
        scale: smoke, small or full.
        runs: all its runs.
    """

    target: str
    scale: str
    runs: Sequence[Cell]

    @property
    def missing(self) -> list[Cell]:
        """Runs without a result."""
        return [run for run in self.runs if not run.is_finished]

    @property
    def num_cells(self) -> int:
        """How many runs there are if seeds do not count."""
        return len({(run.experiment, *(word for word in run.own if not word.startswith("seed="))) for run in self.runs})


def expected_costs(
    plan: Plan, composer: Composer, console: Console, afresh: bool = False, words: Sequence[str] = ()
) -> dict[Path, RunCost]:
    """Return what runs will need, by folder: as finished ones of their size took, else measured.

    Args:
        plan: of one target.
        composer: of configurations.
        console: says what is being measured.
        afresh: measure every kind, also those of finished runs, and those of scale smoke; for runs of seconds,
            measuring would otherwise take as long as they do.
        words: further ones of every run, such as its threads.
    """
    known = {} if afresh else finished_costs(plan.runs)
    probed = [run for run in plan.missing if (afresh or plan.scale != "smoke") and run.folder not in known]
    return known | probed_costs(probed, composer, console, words)


def finished_costs(runs: Sequence[Cell]) -> dict[Path, RunCost]:
    """Return what runs will need of which finished ones of the same kind and size tell, by folder.

    These are medians of the hours that they took, the bytes that they sent, and the bytes of their folders.
    """
    found: dict[tuple, list[RunCost]] = {}
    for run in runs:
        if run.is_finished:
            found.setdefault(_size_of(run), []).append(_recorded_cost(run))
    medians = {
        size: RunCost(*(statistics.median(values) for values in zip(*map(astuple, costs), strict=True)))
        for size, costs in found.items()
    }
    return {run.folder: medians[_size_of(run)] for run in runs if _size_of(run) in medians}


def _size_of(run: Cell) -> tuple:
    """Return what two runs share that cost alike."""
    config = run.config
    sizes = (config[key] for key in ("rounds", "local_epochs", "num_clients", "participation_ratio", "batch_size"))
    return *kind_of(run), *sizes, config["dataset"].get("max_samples"), config["protocol"]["train_fraction"]


def _recorded_cost(run: Cell) -> RunCost:
    summary = read_json(run.folder / SUMMARY) or {}
    disk = sum(path.stat().st_size for path in run.folder.rglob("*") if path.is_file())
    return RunCost(summary["seconds"]["total"] / 3600, summary["upload_bytes"] + summary["download_bytes"], disk)


def plan_table(plan: Plan, costs: Mapping[Path, RunCost], jobs: int) -> Table:
    """Return the plan as a table of two columns.

    Args:
        plan: of one target.
        costs: by folder, measured or from finished runs; one that is not there makes time and disk unknown.
        jobs: runs side by side.
    """
    missing = plan.missing
    table = Table(title=f"{plan.target}, scale {plan.scale}", show_header=False)
    table.add_row("cells", str(plan.num_cells))
    table.add_row("runs", f"{len(plan.runs)}: {len(plan.runs) - len(missing)} done, {len(missing)} to do")
    stand_ins = sorted({run.config["stand_in_for"] for run in plan.runs if run.config["stand_in_for"]})
    if stand_ins:
        table.add_row("stand-ins", f"embedded data take the place of {', '.join(stand_ins)}; such numbers are labelled")
    if not missing or {run.folder for run in missing} - set(costs):
        text = "unknown before the first runs of this size; `make plan` measures it" if missing else "nothing to do"
        table.add_row("expected time and disk", text)
        return table
    known = [costs[run.folder] for run in missing]
    hours = sum(cost.hours for cost in known)
    table.add_row("expected time", _hours(hours, jobs))
    table.add_row("sent by clients and server", f"{sum(cost.sent_bytes for cost in known) / 2**30:.2f} GiB")
    largest, total = max(cost.disk_bytes for cost in known), sum(cost.disk_bytes for cost in known)
    table.add_row("disk", f"{total / 2**30:.2f} GiB with all checkpoints, {largest / 2**30:.2f} GiB the largest run")
    return table


def _hours(hours: float, jobs: int) -> str:
    """Say how long on this machine, in minutes where that reads better."""
    unit, factor = ("hours", 1) if hours >= 1 else ("minutes", 60)
    text = f"{_digits(factor * hours)} {unit} one after another"
    return text if jobs == 1 else f"{text}, {_digits(factor * hours / jobs)} with {jobs} side by side"


def _digits(value: float) -> str:
    """Return two digits of a number, and all that stand before its point."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"
