"""Tables that close a run or a sweep, made from recorded run folders alone.

The runs of a cell differ in the seed alone. Its numbers come from runs that finished; a cell without one shows none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from rich.console import Console
from rich.table import Table

from fedsaf.core.config import flatten, plain
from fedsaf.core.files import read_json
from fedsaf.core.identity import cell_hash
from fedsaf.tracking.recorder import STATUS, SUMMARY
from fedsaf.tracking.summary import DOMAIN_MEAN, PREDICTORS

ALWAYS_SHOWN = ("method", "alignment", "partition")
NOT_A_SETTING = ("seed", "force", "hydra", "logger")
"""Overrides and choices, with all below them, that name no cell: they cannot change what a cell is about."""
ABSENT = "-"
READ_BY_METHOD = ("alignment", "prototype")
"""Groups that a method may neither read nor fix; their choice then says nothing about the run."""
MIB = 2**20
MAX_DOMAINS = 20
"""Domains that the table of a run names; federations of users have hundreds."""


@dataclass(frozen=True)
class Run:
    """One job of a sweep, or one run folder.

    Attributes:
        config: configuration with ``choices`` and ``overrides``; {} if it was never written.
        outcome: finished, resumed, skipped (was finished before), failed, unfinished, interrupted, running or missing.
        summary: content of ``summary.json``, only if the run finished.
        reason: why it failed; empty otherwise.
        cell: its `cell_hash`.
    """

    config: Mapping[str, Any]
    outcome: str
    summary: Mapping[str, Any] | None
    reason: str
    cell: str


def read_run(folder: Path) -> Run:
    """Read a run folder; one that does not exist or holds no status has the outcome ``missing``."""
    from omegaconf import OmegaConf

    path = folder / "config.yaml"
    config = plain(OmegaConf.load(path), resolve=False) if path.exists() else {}
    status = read_json(folder / STATUS) or {"state": "missing"}
    summary = read_json(folder / SUMMARY) if status["state"] == "finished" else None
    return Run(config, status["state"], summary, str(status.get("reason", "")), cell_hash(config))


def telling_choices(config: Mapping[str, Any], choices: Mapping[str, str]) -> dict[str, str]:
    """Return the choices that say something about a run: none that is empty, nor of what its method does not have."""
    method = config.get("method") or {"reads": READ_BY_METHOD}
    absent = {*READ_BY_METHOD} - {*(method.get("reads") or ()), *(method.get("fixes") or ())}
    told = {key: value for key, value in choices.items() if value not in (None, "null") and key not in absent}
    if "method" in told:  # its own name may say more than its file: fedtsp_lexical is no FedTSP
        told["method"] = method.get("name") or told["method"]
    return told


def settings_of(runs: Sequence[Run]) -> list[dict[str, str]]:
    """Return what names the cell of each run: its choices, the numbers at the top of its configuration, what was swept.

    Left out are the seed and, but for `ALWAYS_SHOWN`, what all runs share; what a run lacks is shown as ``-``.
    """
    chosen = {group for run in runs for group in run.config.get("choices", {})}
    words = [word for run in runs for word in run.config.get("overrides", ())]
    swept = {word.lstrip("+~").partition("=")[0].partition("@")[0] for word in words} - chosen
    full = [_settings(run, sorted(filter(_names_cell, swept))) for run in runs]
    keys = list(dict.fromkeys(key for settings in full for key in settings))
    varied = [key for key in keys if len({settings.get(key, ABSENT) for settings in full}) > 1]
    shown = dict.fromkeys([*(key for key in ALWAYS_SHOWN if key in keys), *varied])
    return [{key: settings.get(key, ABSENT) for key in shown} for settings in full]


def cells(runs: Sequence[Run]) -> list[tuple[dict[str, str], list[Run]]]:
    """Group runs by cell, in order of appearance, each with what names it.

    Cells that differ in something that no setting shows are told apart by their hash.
    """
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.cell].append(run)
    settings = settings_of([members[0] for members in groups.values()])
    times = Counter(tuple(shown.items()) for shown in settings)
    return [
        (shown if times[tuple(shown.items())] == 1 else {**shown, "config": cell[:8]}, members)
        for shown, (cell, members) in zip(settings, groups.items(), strict=True)
    ]


def closing_table(runs: Sequence[Run], predictor: str, measure: str) -> Table:
    """Return one line per cell: mean and population standard deviation over seeds, and how many runs are behind it.

    ``n`` counts finished runs with a number; the standard deviation divides by n, and one run has none. ``measure`` is
    pooled or client_mean.
    """
    table = Table(
        title=f"{predictor.replace('_', ' ')} accuracy in %, {measure.replace('_', ' ')}: mean ± std over n seeds",
        caption="best: round with the largest pooled accuracy on the test parts; std divides by n",
        title_justify="left",
        caption_justify="left",
    )
    grouped = cells(runs)
    names = list(dict.fromkeys(key for settings, _ in grouped for key in settings))
    short = Counter(name.rpartition(".")[2] for name in names)
    for name in names:
        last = name.rpartition(".")[2]
        table.add_column(last if short[last] == 1 else name, overflow="fold")
    for name in ("best", "last", "n"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("jobs")
    for settings, members in grouped:
        best, final = (_accuracies(members, predictor, when, measure) for when in ("best", "last"))
        outcomes = Counter(run.outcome for run in members)
        jobs = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
        row = (settings.get(name, ABSENT) for name in names)
        table.add_row(*row, mean_and_std(best), mean_and_std(final), str(len(best)), jobs)
    return table


def mean_and_std(values: Sequence[float]) -> str:
    """Return mean and population standard deviation of fractions in percent; one has no deviation, and none is ``-``.

    >>> mean_and_std([0.70, 0.74]), mean_and_std([0.7])
    ('72.00 ± 2.00', '70.00')
    """
    mean = f"{100 * fmean(values):.2f}" if values else ABSENT
    return f"{mean} ± {100 * pstdev(values):.2f}" if len(values) > 1 else mean


def failures(runs: Iterable[Run]) -> list[str]:
    """Return one line per job that failed or did not end: what it was asked and why."""
    return [
        f"{run.outcome}: {' '.join(run.config.get('overrides', ())) or 'default configuration'}: {run.reason}"
        for run in runs
        if run.outcome in ("failed", "unfinished")
    ]


def run_table(summary: Mapping[str, Any]) -> Table:
    """Return the result of one finished run, from its ``summary.json``: accuracies, traffic, time and memory.

    Where clients hold domains, each rule is followed by one line per domain and their unweighted mean, at the best
    round of that mean; beyond ``MAX_DOMAINS`` the mean stands alone.
    """
    table = Table(
        title=f"accuracy in %, pooled (client mean), after {summary['rounds']} rounds",
        caption=_costs(summary),
        title_justify="left",
        caption_justify="left",
    )
    for name in ("prediction", "last", "best", "best round"):
        table.add_column(name, justify="left" if name == "prediction" else "right", no_wrap=True)
    for rule in dict.fromkeys((*PREDICTORS, *sorted(summary))):
        entry = summary.get(rule)
        if isinstance(entry, Mapping) and "last" in entry and "best" in entry:
            accuracies = (_percent(entry[when]["pooled"], entry[when].get("client_mean")) for when in ("last", "best"))
            table.add_row(rule.replace("_", " "), *accuracies, str(entry["best"]["round"]))
            for row in _domain_rows((summary.get("domains") or {}).get(rule)):
                table.add_row(*row)
    return table


def _domain_rows(domains: Mapping[str, Any] | None) -> list[tuple[str, ...]]:
    """Return one line per domain and one for their mean; [] if the run has none."""
    if not domains:
        return []
    last, best = domains["last"], domains["best"]
    names = list(best["accuracy"])
    parts = [(name, last["accuracy"][name], best["accuracy"][name]) for name in names if len(names) <= MAX_DOMAINS]
    parts.append((f"mean over {len(names)} domains", last[DOMAIN_MEAN], best[DOMAIN_MEAN]))
    return [(f"  {name}", *map(_percent, values), str(best["round"])) for name, *values in parts]


def _percent(share: float | None, client_mean: float | None = None) -> str:
    text = ABSENT if share is None else f"{100 * share:.2f}"
    return text if client_mean is None else f"{text} ({100 * client_mean:.2f})"


def _costs(summary: Mapping[str, Any]) -> str:
    seconds = ", ".join(f"{name} {value:.1f}" for name, value in summary["seconds"].items())
    moved = ", ".join(f"{way}ed {summary[f'{way}_bytes'] / MIB:.2f} MiB" for way in ("upload", "download"))
    parts = [moved, f"seconds: {seconds}"]
    if (median := summary.get("median_round_seconds")) is not None:
        parts.append(f"median {median:.1f} s per round")
    for key, name in {"resident": "memory of the largest rank", "device": "memory of the device"}.items():
        if (peak := summary.get(f"max_{key}_bytes")) is not None:
            parts.append(f"peak {name} {peak / MIB:.0f} MiB")
    return "; ".join(parts)


def wide_console() -> Console:
    """Return a console for tables: as wide as the terminal, or wide enough for any table where there is none."""
    console = Console()
    return console if console.is_terminal else Console(width=240)


def _accuracies(runs: Sequence[Run], predictor: str, when: str, measure: str) -> list[float]:
    found: dict[str, float | None] = {}
    for run in runs:
        if run.summary and run.summary.get(predictor):
            found[run.summary["config_hash"]] = run.summary[predictor][when].get(measure)
    return [value for value in found.values() if value is not None]


def _settings(run: Run, swept: Sequence[str]) -> dict[str, str]:
    leaves = dict(flatten(run.config))
    values: dict[str, Any] = dict.fromkeys(run.config.get("choices", {}))
    values |= telling_choices(run.config, run.config.get("choices", {}))
    values |= {key: value for key, value in run.config.items() if isinstance(value, int | float)}
    values = {key: value for key, value in values.items() if _names_cell(key)}
    values |= {key: leaves.get(key) for key in swept}
    return {key: ABSENT if value is None else str(value) for key, value in values.items()}


def _names_cell(name: str) -> bool:
    """Return whether a choice or key tells cells apart; what two choices make of a third follows from them."""
    return name.replace("/", ".").partition(".")[0] not in NOT_A_SETTING
