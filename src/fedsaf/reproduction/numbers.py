"""What tables show and claims compare: one number of one run, in the unit that is printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from fedsaf.reproduction.figures.prototypes import local_prototypes, silhouettes
from fedsaf.reproduction.frame import Run
from fedsaf.tracking.summary import DOMAIN_MEAN

MIB = 2**20
FLOAT_BYTES = 4
PATIENCE = 100
"""Rounds without a new best after which FedTGP's runs stop; ours go on, and what comes later does not count."""
MARGIN = "diagnostics/margin_mean"
"""Key of a client's record: mean over its classes of the distance to the nearest other prototype."""
DOMAINS: dict[str, Sequence[str]] = {"Art": ("art_painting", "art"), "Avg": ()}
"""Names in data sets of a domain that are not the printed one; ``Avg`` is the unweighted mean over domains."""
Value = Callable[[Run, str, str], float | None]


@dataclass(frozen=True)
class Number:
    """A number of a run.

    Attributes:
        text: what it is, for a heading; ``{rule}`` stands for the prediction rule.
        unit: as printed.
        best: ``high``, ``low``, or empty where values are not ranked.
        value: (run, prediction rule, part) -> the number, None if the run has none. The part says which of several
            numbers of one run is meant.
    """

    text: str
    unit: str
    best: str
    value: Value


def _best(run: Run, rule: str, part: str) -> float | None:
    return _known(100 * run.scored(rule)["pooled"].max())


def _last(run: Run, rule: str, part: str) -> float | None:
    scored = run.scored(rule)["pooled"]
    return 100 * scored.iloc[-1] if len(scored) else None


def _patient(run: Run, rule: str, part: str) -> float | None:
    """Return the best accuracy that a run has had when it would have stopped."""
    scored = run.scored(rule)
    is_new = scored["pooled"] > scored["pooled"].cummax().shift(fill_value=-1)
    waited = scored["round"] - scored["round"].where(is_new).ffill()
    return _known(100 * scored["pooled"][~(waited >= PATIENCE).cummax()].max())


def _domain(run: Run, rule: str, part: str) -> float | None:
    best = ((run.summary.get("domains") or {}).get(run.rule(rule)) or {}).get("best")
    if best is None or part == "Avg":
        return best and 100 * best[DOMAIN_MEAN]
    known = {name.lower().replace(" ", "_"): value for name, value in best["accuracy"].items() if value is not None}
    return next((100 * known[name] for name in DOMAINS.get(part, (part.lower(),)) if name in known), None)


def _median(column: Callable[[pd.DataFrame], pd.Series]) -> Callable[[Run], float | None]:
    """Return the median over the rounds that trained."""

    def value(run: Run) -> float | None:
        once = run.rounds[run.rounds["predictor"] == run.rounds["predictor"].iloc[0]]
        return _known(column(once[once["round"] >= 1]).median())

    return value


COSTS = {
    "upload": _median(lambda rounds: rounds["upload_bytes"] / MIB),
    "download": _median(lambda rounds: rounds["download_bytes"] / MIB),
    "server": _median(lambda rounds: rounds["seconds.server"]),
    "client": _median(lambda rounds: rounds["seconds.client"]),
}
"""Parts of FedSAF's Table IX: MiB that all participants of a round send and receive, seconds of server and clients."""
_numbers = _median(lambda rounds: (rounds["upload_bytes"] + rounds["download_bytes"]) / FLOAT_BYTES / 1e6)
_seconds = _median(lambda rounds: rounds["seconds"])


def _margin(run: Run, rule: str, part: str) -> float | None:
    """Return a mean over classes of the distance to the nearest other class, in the last diagnosed round."""
    diagnosed = _last_diagnosed(run)
    if diagnosed is None or part == "global":
        return diagnosed and diagnosed.get("global_margin_mean")
    clients = run.clients[run.clients["round"] == diagnosed["round"]]
    return _known(clients[MARGIN].max()) if MARGIN in clients else None


def _last_diagnosed(run: Run) -> dict[str, Any] | None:
    return next(
        ({**row["diagnostics"], "round": row["round"]} for row in run.rows[::-1] if row.get("diagnostics")), None
    )


def _dimension(run: Run, rule: str, part: str) -> float | None:
    return (_last_diagnosed(run) or {}).get("effective_dimension")


def _rigid_share(run: Run, rule: str, part: str) -> float | None:
    """Return rigid part over coordinate loss, in [0, 1]; None if not diagnosed, or where the loss is 0."""
    parts = _last_diagnosed(run) or {}
    return parts["rigid"] / parts["coordinate"] if "rigid" in parts and parts.get("coordinate") else None


def _silhouette(by: str) -> Value:
    return lambda run, rule, part: silhouettes(local_prototypes(run.folder))[by]


def _large_over_small(run: Run, rule: str, part: str) -> float | None:
    """Return in points the mean accuracy of clients with larger architectures minus that of those with smaller ones.

    Larger means the second half of the group's list, which goes by size; a middle one stands on neither side. Taken in
    the best round; None for a group of one architecture.
    """
    names = (run.config.get("model_group") or {}).get("architectures") or []
    scored, half = run.scored(rule), len(names) // 2
    if scored.empty or not half:
        return None
    clients = run.clients[run.clients["round"] == scored["round"].loc[scored["pooled"].idxmax()]]
    large, small = (
        clients.loc[clients["architecture"].isin(some), run.rule(rule)].mean() for some in (names[-half:], names[:half])
    )
    return _known(100 * (large - small))


def _known(value: float) -> float | None:
    return None if pd.isna(value) else float(value)


_PATIENT = Number(
    f"{{rule}} accuracy, pooled, best round on the test parts until {PATIENCE} rounds bring no better one",
    "%",
    "high",
    _patient,
)


def _by(rule: str) -> Number:
    """Return FedTGP's best accuracy by one prediction rule, whatever the method's own rule is."""
    text = _PATIENT.text.replace("{rule}", rule.replace("_", " "))
    return replace(_PATIENT, text=text, value=lambda run, _, part: _patient(run, rule, part))


NUMBERS = {
    "best": Number("{rule} accuracy, pooled, best round on the test parts", "%", "high", _best),
    "best_patient": _PATIENT,
    "last": Number("{rule} accuracy, pooled, last round", "%", "high", _last),
    "domains": Number(
        "{rule} accuracy per domain, in the round with the best unweighted mean over domains (Avg)",
        "%",
        "high",
        _domain,
    ),
    "costs": Number(
        "upload and download in MiB, computation in seconds, of all participants of a round; median over rounds",
        "",
        "low",
        lambda run, rule, part: COSTS[part](run),
    ),
    "numbers": Number(
        "numbers sent and received by all clients in a round, median over rounds",
        "10^6 numbers",
        "low",
        lambda run, rule, part: _numbers(run),
    ),
    "seconds": Number("wall time of a round, median over rounds", "s", "low", lambda run, rule, part: _seconds(run)),
    "margins": Number(
        "distance of a class's prototype to the nearest other one, mean over classes, last diagnosed round",
        "",
        "high",
        _margin,
    ),
    "effective_dimension": Number(
        "directions that hold 90 % of the squared singular values of all local prototypes, last diagnosed round",
        "dimensions",
        "",
        _dimension,
    ),
    "rigid_share": Number(
        "rigid part as a share of the coordinate loss, mean over clients, last diagnosed round", "", "", _rigid_share
    ),
    "silhouette_by_class": Number("silhouette by class of the last local prototypes", "", "", _silhouette("by_class")),
    "silhouette_by_client": Number(
        "silhouette by client of the last local prototypes", "", "", _silhouette("by_client")
    ),
    "by_classifier": _by("classifier"),
    "by_nearest_prototype": _by("nearest_prototype"),
    "large_over_small": Number(
        "{rule} accuracy of clients with larger architectures minus that of those with smaller ones, best round",
        "%",
        "",
        _large_over_small,
    ),
}
"""Numbers by the names that experiments and claims use."""
