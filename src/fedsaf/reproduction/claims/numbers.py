"""Numbers of one run that claims compare, beside those of the tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

from fedsaf.reproduction.collect import RecordedRun
from fedsaf.reproduction.figures.prototypes import LocalPrototypes, local_prototypes, silhouette
from fedsaf.reproduction.measures import MEASURES, Measure, rule_of


def _last_diagnosed(run: RecordedRun) -> Mapping[str, Any]:
    return next((row["diagnostics"] for row in reversed(run.rows) if row.get("diagnostics")), {})


def _effective_dimension(run: RecordedRun, rule: str, setting: str) -> float | None:
    return _last_diagnosed(run).get("effective_dimension")


def _rigid_share(run: RecordedRun, rule: str, setting: str) -> float | None:
    """Return rigid part over coordinate loss, in [0, 1]; None if not diagnosed, or where the loss is 0."""
    parts = _last_diagnosed(run)
    if "rigid" not in parts or not parts.get("coordinate"):
        return None
    return parts["rigid"] / parts["coordinate"]


def _silhouette(groups: Callable[[LocalPrototypes], Any]) -> Callable[[RecordedRun, str, str], float | None]:
    def value(run: RecordedRun, rule: str, setting: str) -> float | None:
        local = local_prototypes(run)
        return silhouette(local.means, groups(local))

    return value


def _large_over_small(run: RecordedRun, rule: str, setting: str) -> float | None:
    """Return in points the mean accuracy of clients with larger architectures minus that of those with smaller ones.

    Larger means the second half of the group's list, which goes by size; a middle one stands on neither side. Taken in
    the best round; None for a group of one architecture.
    """
    names = (run.config.get("model_group") or {}).get("architectures") or []
    rule = rule_of(run, rule)
    best = (run.summary.get(rule) or {}).get("best")
    half = len(names) // 2
    if best is None or not half:
        return None
    rows = [row for row in run.client_rows if row["round"] == best["round"] and row.get(rule) is not None]
    large = [row[rule] for row in rows if row.get("architecture") in names[-half:]]
    small = [row[rule] for row in rows if row.get("architecture") in names[:half]]
    return 100 * (fmean(large) - fmean(small)) if large and small else None


def _best_by(rule: str) -> Measure:
    """Return FedTGP's best accuracy by one prediction rule, whatever the method's own rule is."""
    best = MEASURES["best_patient"]
    text = best.text.replace("{rule}", rule.replace("_", " "))
    return replace(best, text=text, value=lambda run, _, setting: best.value(run, rule, setting))


NUMBERS: dict[str, Measure] = MEASURES | {
    "effective_dimension": Measure(
        "directions that hold 90 % of the squared singular values of all local prototypes, last diagnosed round",
        "dimensions",
        "",
        _effective_dimension,
    ),
    "rigid_share": Measure(
        "rigid part as a share of the coordinate loss, mean over clients, last diagnosed round", "", "", _rigid_share
    ),
    "silhouette_by_class": Measure(
        "silhouette by class of the last local prototypes", "", "", _silhouette(lambda local: local.label)
    ),
    "silhouette_by_client": Measure(
        "silhouette by client of the last local prototypes", "", "", _silhouette(lambda local: local.client)
    ),
    "by_classifier": _best_by("classifier"),
    "by_nearest_prototype": _best_by("nearest_prototype"),
    "large_over_small": Measure(
        "{rule} accuracy of clients with larger architectures minus that of those with smaller ones, best round",
        "%",
        "",
        _large_over_small,
    ),
}
"""Numbers by the names that claims use."""
