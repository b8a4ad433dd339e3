"""What a cell of a table shows: one number of one run, in the unit that is printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from fedsaf.reproduction.collect import RecordedRun
from fedsaf.tracking.summary import DOMAIN_MEAN

MIB = 2**20
FLOAT_BYTES = 4
REPORTED = "reported"
"""Stands for the prediction rule by which a method is scored in its own paper."""


@dataclass(frozen=True)
class Measure:
    """A number of a run.

    Attributes:
        text: what it is, for the heading of a table; ``{rule}`` stands for the prediction rule.
        unit: as printed.
        best: ``high``, ``low``, or empty where values are not ranked.
        value: (run, prediction rule, setting) -> the number, None if the run has none. The setting is the cell's label,
            by which a measure with several parts tells which is meant.
        parts: settings that name a part of the same run rather than another run; None for a measure without parts.
    """

    text: str
    unit: str
    best: str
    value: Callable[[RecordedRun, str, str], float | None]
    parts: Mapping[str, Any] | None = None


def rule_of(run: RecordedRun, rule: str) -> str:
    """Return the prediction rule that is meant in this run."""
    return run.summary["predictor"] if rule == REPORTED else rule


def _accuracy(when: str, measure: str) -> Callable[[RecordedRun, str, str], float | None]:
    def value(run: RecordedRun, rule: str, setting: str) -> float | None:
        accuracy = (run.summary.get(rule_of(run, rule)) or {}).get(when) or {}
        return None if accuracy.get(measure) is None else 100 * accuracy[measure]

    return value


PATIENCE = 100
"""Rounds without a new best after which FedTGP's runs stop; ours go on, and what comes later does not count."""


def _patient(run: RecordedRun, rule: str, setting: str) -> float | None:
    """Return the best accuracy that a run has had when it would have stopped."""
    best: tuple[float, int] | None = None
    for row in run.rows:
        accuracy = row.get(rule_of(run, rule))
        if accuracy is None or row["round"] < 1:
            continue
        if best is None or accuracy["pooled"] > best[0]:
            best = accuracy["pooled"], row["round"]
        elif row["round"] - best[1] >= PATIENCE:
            break
    return None if best is None else 100 * best[0]


DOMAINS: dict[str, Sequence[str]] = {
    "Art": ("art_painting", "art"),
    "Cartoon": ("cartoon",),
    "Photo": ("photo",),
    "Sketch": ("sketch",),
    "Clipart": ("clipart",),
    "Infograph": ("infograph",),
    "Painting": ("painting",),
    "Quickdraw": ("quickdraw",),
    "Real": ("real",),
    "Avg": (),
}
"""Printed name of a domain and its names in data sets; ``Avg`` is the unweighted mean over domains."""


def _domain(run: RecordedRun, rule: str, setting: str) -> float | None:
    best = ((run.summary.get("domains") or {}).get(rule_of(run, rule)) or {}).get("best")
    if best is None:
        return None
    if not DOMAINS[setting]:
        return 100 * best[DOMAIN_MEAN]
    accuracies = {name.lower().replace(" ", "_"): value for name, value in best["accuracy"].items()}
    found = next((accuracies[name] for name in DOMAINS[setting] if accuracies.get(name) is not None), None)
    return None if found is None else 100 * found


def _per_round(rows: Sequence[Mapping[str, Any]], number: Callable[[Mapping[str, Any]], float]) -> float | None:
    """Return the median over the rounds that trained; None if there is none."""
    values = [number(row) for row in rows if row["round"] >= 1]
    return median(values) if values else None


def _mib(key: str) -> Callable[[RecordedRun], float | None]:
    return lambda run: _per_round(run.rows, lambda row: row[key]["total"] / MIB)


def _seconds(key: str) -> Callable[[RecordedRun], float | None]:
    return lambda run: _per_round(run.timing, lambda row: row[key])


def _numbers(run: RecordedRun, rule: str, setting: str) -> float | None:
    def millions(row: Mapping[str, Any]) -> float:
        return (row["upload_bytes"]["total"] + row["download_bytes"]["total"]) / FLOAT_BYTES / 1e6

    return _per_round(run.rows, millions)


COSTS: dict[str, Callable[[RecordedRun], float | None]] = {
    "upload": _mib("upload_bytes"),
    "download": _mib("download_bytes"),
    "server": _seconds("server"),
    "client": _seconds("client"),
}
"""Parts of FedSAF's Table IX: MiB that all participants of a round send and receive, seconds of server and clients."""

MARGIN = "diagnostics/margin_mean"
MARGINS = {"best client": MARGIN, "global": "global_margin_mean"}
"""Parts of the table of prototype margins: the client with the largest, and the server's prototypes."""


def _margin(run: RecordedRun, rule: str, setting: str) -> float | None:
    """Return a mean over classes of the distance to the nearest other class, in the last diagnosed round."""
    diagnosed = [row for row in run.rows if row.get("diagnostics")]
    if not diagnosed:
        return None
    if setting == "global":
        return diagnosed[-1]["diagnostics"].get(MARGINS[setting])
    values = [row.get(MARGIN) for row in run.client_rows if row["round"] == diagnosed[-1]["round"]]
    return max((value for value in values if value is not None), default=None)


def _costs(run: RecordedRun, rule: str, setting: str) -> float | None:
    return COSTS[setting](run)


def _round_seconds(run: RecordedRun, rule: str, setting: str) -> float | None:
    return run.summary.get("median_round_seconds")


MEASURES = {
    "best": Measure("{rule} accuracy, pooled, best round on the test parts", "%", "high", _accuracy("best", "pooled")),
    "best_patient": Measure(
        f"{{rule}} accuracy, pooled, best round on the test parts until {PATIENCE} rounds bring no better one",
        "%",
        "high",
        _patient,
    ),
    "last": Measure("{rule} accuracy, pooled, last round", "%", "high", _accuracy("last", "pooled")),
    "domains": Measure(
        "{rule} accuracy per domain, in the round with the best unweighted mean over domains (Avg)",
        "%",
        "high",
        _domain,
        DOMAINS,
    ),
    "costs": Measure(
        "upload and download in MiB, computation in seconds, of all participants of a round; median over rounds",
        "",
        "low",
        _costs,
        COSTS,
    ),
    "numbers": Measure(
        "numbers sent and received by all clients in a round, median over rounds", "10^6 numbers", "low", _numbers
    ),
    "seconds": Measure("wall time of a round, median over rounds", "s", "low", _round_seconds),
    "margins": Measure(
        "distance of a class's prototype to the nearest other one, mean over classes, last diagnosed round",
        "",
        "high",
        _margin,
        MARGINS,
    ),
}
"""Measures by the names that table definitions use."""
