"""What is drawn, as the rows of a frame: a point, bar or field each, with its mean and extremes over seeds.

The values come from rows of the frame of runs, those of a figure of a paper with the names of their place in it:
``panel``, ``series``, ``point``, ``stand_in``, ``part``, and what is swept by the name on its axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fedsaf.reproduction.soundness import read_lines
from fedsaf.tracking.recorder import CLIENTS

MAX_CLIENTS = 9
"""Clients that the bars show: the first ones, as in the paper."""
MARGIN = "diagnostics/margin_mean"
RUN = "folder"


def spread(values: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return mean, smallest, largest and number of ``value`` for each group, in order of appearance."""
    groups = values.dropna(subset="value").groupby(list(by), sort=False, observed=True)["value"]
    return groups.agg(mean="mean", low="min", high="max", n="count").reset_index()


def accuracies(placed: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracy in % of each run in each round that was evaluated."""
    return placed.assign(value=100 * placed["pooled"]).dropna(subset="value")


def best(placed: pd.DataFrame) -> pd.DataFrame:
    """Return the best accuracy of each run, in the earliest such round; rounds that trained count before round 0."""
    values = accuracies(placed)
    values = values[(values["round"] >= 1) | ~values[RUN].isin(values.loc[values["round"] >= 1, RUN])]
    return values.loc[values.groupby(RUN, sort=False, observed=True)["value"].idxmax()]


def last(placed: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracy of each run after its last round."""
    return accuracies(placed).drop_duplicates(RUN, keep="last")


def diagnosed(placed: pd.DataFrame, key: str) -> pd.DataFrame:
    """Return a number about all clients together in the rounds that were diagnosed."""
    return placed.assign(value=placed[f"diagnostics.{key}"]).dropna(subset="value")


def margins(placed: pd.DataFrame) -> pd.DataFrame:
    """Return margins of the server's prototypes, or of the client for which it is largest in that round, by part."""
    of_best = placed[placed["part"] != "global"]
    largest = {
        (folder, round): value
        for folder in of_best[RUN].unique()
        if MARGIN in (clients := clients_of(folder))
        for round, value in clients.groupby("round")[MARGIN].max().items()
    }
    values = [largest.get(key) for key in zip(of_best[RUN], of_best["round"], strict=True)]
    of_server = diagnosed(placed[placed["part"] == "global"], "global_margin_mean")
    return pd.concat([of_server, of_best.assign(value=values).dropna(subset="value")])


def of_clients(placed: pd.DataFrame) -> pd.DataFrame:
    """Return the accuracy in % of each of the first clients in the best round of each run, NaN without test samples."""
    parts = [placed.head(0).assign(client=0, architecture="", value=0.0)]
    for row in best(placed).to_dict("records"):
        clients = clients_of(row[RUN])
        clients = clients[(clients["round"] == row["round"]) & (clients["client"] < MAX_CLIENTS)]
        value = 100 * clients[row["predictor"]].astype(float)
        parts.append(clients.reindex(columns=["client", "architecture"]).assign(**row | {"value": value}))
    return pd.concat(parts[1:] or parts)


def clients_of(folder: str | Path) -> pd.DataFrame:
    """Return the recorded rows of a run's clients, a row per round and client."""
    return pd.DataFrame(read_lines(Path(folder) / CLIENTS))


def gains(placed: pd.DataFrame, swept: Sequence[str]) -> pd.DataFrame:
    """Return by how much the best accuracy is above that with all swept values 0, on the same data and seed.

    ``accuracy`` is the accuracy itself; the gain of a run without such a reference is NaN.
    """
    values = best(placed).rename(columns={"value": "accuracy"})
    pair = ["panel", "series", "stand_in", "seed"]
    origin = values[(values[list(swept)] == 0).all(axis=1)].set_index(pair)["accuracy"]
    return values.join(origin.rename("origin"), on=pair).assign(value=lambda all: all["accuracy"] - all["origin"])


def shared_rounds(values: pd.DataFrame, by: Sequence[str], with_best: bool = False) -> pd.DataFrame:
    """Return one row per line and round, of rounds that all seeds of a line have.

    Args:
        values: one per run and round.
        by: what tells lines apart.
        with_best: whether ``best`` says which round has the line's largest mean after round 0.
    """
    by = list(by)
    seeds = values.groupby(by, sort=False, observed=True)[RUN].nunique().rename("seeds")
    rows = spread(values, [*by, "round"]).join(seeds, on=by)
    rows = rows[rows["n"] == rows["seeds"]].drop(columns="seeds")
    if with_best:
        trained = rows[rows["round"] >= 1].groupby(by, sort=False)["mean"]
        rows["best"] = rows.index.isin(trained.idxmax())
    return rows
