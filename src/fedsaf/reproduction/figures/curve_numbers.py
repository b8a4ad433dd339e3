"""What a curve shows: one number per round of one run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fedsaf.reproduction.collect import RecordedRun
from fedsaf.reproduction.measures import MARGIN, MARGINS, rule_of
from fedsaf.tracking.summary import evaluated

Curve = dict[int, float]


@dataclass(frozen=True)
class CurveNumber:
    """A number of every round.

    Attributes:
        text: what it is, for the caption; ``{rule}`` stands for the prediction rule.
        axis: label of the axis.
        has_best: whether the largest value is marked.
        values: (run, prediction rule, setting) -> value by round; {} if the run has none. The setting names a part
            of the run where it has several.
    """

    text: str
    axis: str
    has_best: bool
    values: Callable[[RecordedRun, str, str], Curve]


def _accuracy(run: RecordedRun, rule: str, setting: str) -> Curve:
    return {row["round"]: 100 * row["pooled"] for row in evaluated(run.rows, rule_of(run, rule))}


def diagnosed(run: RecordedRun, key: str) -> Curve:
    """Return a number about all clients together in the rounds that were diagnosed."""
    rows = [row for row in run.rows if (row.get("diagnostics") or {}).get(key) is not None]
    return {row["round"]: row["diagnostics"][key] for row in rows}


def _margin(run: RecordedRun, rule: str, setting: str) -> Curve:
    if setting == "global":
        return diagnosed(run, MARGINS[setting])
    best: Curve = {}
    for row in run.client_rows:
        value = row.get(MARGIN)
        if value is not None:
            best[row["round"]] = max(value, best.get(row["round"], value))
    return best


CURVE_NUMBERS = {
    "accuracy": CurveNumber(
        "{rule} accuracy, pooled over clients, on the test parts", "accuracy in %", True, _accuracy
    ),
    "effective_dimension": CurveNumber(
        "number of directions that hold 90 % of the squared singular values of the clients' stacked prototypes, rows "
        "normalised and centred",
        "effective dimensions",
        False,
        lambda run, rule, setting: diagnosed(run, "effective_dimension"),
    ),
    "margins": CurveNumber(
        "distance of a class's prototype to the nearest other one, mean over classes: of the server's prototypes, and "
        "of the client for which it is largest in that round",
        "margin",
        False,
        _margin,
    ),
}
"""Numbers by the names that figure definitions use."""
