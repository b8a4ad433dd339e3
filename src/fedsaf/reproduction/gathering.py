"""From places to numbers: a row per place, and a row per place and seed, which tables and claims group as they need."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt
from typing import Any

import pandas as pd
from scipy.stats import t

from fedsaf.reproduction.experiments import Place
from fedsaf.reproduction.frame import Run
from fedsaf.reproduction.matching import Matcher
from fedsaf.reproduction.numbers import Number
from fedsaf.reproduction.soundness import UnusableRun

LEVEL = 0.95
"""Coverage of every interval in a report."""
ALONE = "all"
"""Name of the only row or column."""


def gather(places: Iterable[Place], matcher: Matcher, number: Number, rule: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return places with what is known about their runs, and the numbers of these.

    Args:
        places: where numbers stand.
        matcher: of recorded runs.
        number: which one of a run.
        rule: prediction rule, or ``reported``.

    Returns:
        A row per place: its roles by name, its labels, ``place``, ``stand_in`` (the data set in place of the named one,
        or empty), ``members`` (runs with a number), ``notes``, and ``problems`` (why runs that seem to belong there do
        not count). And a row per place and run: ``place`` (index of the first frame), ``seed``, ``value``.
    """
    rows: list[dict[str, Any]] = []
    values: list[dict[str, Any]] = []
    for index, place in enumerate(places):
        found = matcher.find(place.cell)
        problems, members = list(found.problems), list[Run]()
        for run in found.runs:
            try:
                value = number.value(run, rule, place.part)
            except UnusableRun as error:
                problems.append(str(error))
                continue
            if value is None:
                problems.append(f"{run.folder.name}: has no number of this kind")
                continue
            members.append(run)
            values.append({"place": index, "seed": run.seed, "value": value})
        roles = {role: place.name(role) or ALONE for role in place.roles}
        known = {"stand_in": found.stand_in if members else "", "members": members, "notes": list(found.notes)}
        rows.append({**roles, **place.labels, "place": place, **known, "problems": problems})
    return pd.DataFrame(rows), pd.DataFrame(values, columns=["place", "seed", "value"])


def spread(values: pd.Series, by: Any) -> pd.DataFrame:
    """Return what values of a few seeds say, by group.

    The interval is ``mean ± t(0.975, n - 1) s / sqrt(n)`` with s divided by n - 1; it supposes independent, roughly
    normal values, as seeds of one configuration are. It has width 0 where all values are equal.

    >>> spread(pd.Series([1.0, 2.0, 3.0, 5.0]), [0, 0, 0, 1]).round(2).values.tolist()
    [[2.0, 0.82, 3.0, -0.48, 4.48], [5.0, nan, 1.0, nan, nan]]

    Returns:
        ``mean``; ``std``, divided by n as papers give it; ``n``; ``low`` and ``high``, the bounds of the 95 % interval
        of the mean. One value tells nothing about its spread: deviation and interval are NaN.
    """
    groups = values.astype(float).groupby(by, sort=False)
    mean, n, deviation = groups.mean(), groups.count(), groups.std()
    half = t.ppf((1 + LEVEL) / 2, n - 1) * deviation / n.map(sqrt)
    return pd.DataFrame(
        {"mean": mean, "std": deviation * ((n - 1) / n).map(sqrt), "n": n, "low": mean - half, "high": mean + half}
    )
