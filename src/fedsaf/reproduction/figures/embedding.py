"""Local prototypes of the last round in two dimensions, and whether they cluster by class or by client."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file
from sklearn.manifold import TSNE
from sklearn.metrics import silhouette_score

from fedsaf.reproduction.collect import RecordedRun
from fedsaf.reproduction.figures.numbers import Gatherer, Numbers, Row
from fedsaf.reproduction.records import UnusableRun

UPLOADS = "uploads_prototypes.safetensors"
PERPLEXITY, RANDOM_STATE = 30, 42
"""As in the paper's figure; the perplexity is capped by the number of prototypes."""


@dataclass(frozen=True)
class LocalPrototypes:
    """The prototypes that the participants of the last round uploaded.

    Attributes:
        client: (n,) int, who.
        label: (n,) int, of which class.
        means: (n, d) float.
    """

    client: np.ndarray
    label: np.ndarray
    means: np.ndarray


def local_prototypes(run: RecordedRun) -> LocalPrototypes:
    """Read the local prototypes of a run.

    Raises:
        UnusableRun: the run recorded none, or they are damaged or not finite; the message says which.
    """
    path = run.folder / UPLOADS
    if not path.exists():
        raise UnusableRun(
            f"{run.folder.name} has no {UPLOADS}: no class rows travelled in its last round, or it was "
            "made before runs kept them"
        )
    try:
        tensors = load_file(path)
        found = LocalPrototypes(tensors["client"], tensors["labels"], tensors["means"])
    except (SafetensorError, KeyError, OSError) as error:
        raise UnusableRun(f"{run.folder.name}: {UPLOADS} cannot be read: {error}") from error
    if found.means.ndim != 2 or not found.client.shape == found.label.shape == found.means.shape[:1]:
        shapes = ", ".join(str(part.shape) for part in (found.client, found.label, found.means))
        raise UnusableRun(f"{run.folder.name}: {UPLOADS} holds {shapes}, expected (n,), (n,) and (n, d)")
    if not np.isfinite(found.means).all():
        raise UnusableRun(f"{run.folder.name}: {UPLOADS} holds numbers that are not finite")
    return found


def embed(means: np.ndarray) -> np.ndarray:
    """Return t-SNE coordinates, perplexity min(30, n - 1) and a fixed random state: (n, d) -> (n, 2).

    Raises:
        ValueError: fewer than three rows, which have no neighbourhoods.
    """
    if len(means) < 3:
        raise ValueError(f"means: got {len(means)} prototypes, expected at least 3 to embed")
    perplexity = min(PERPLEXITY, len(means) - 1)
    return TSNE(n_components=2, perplexity=perplexity, random_state=RANDOM_STATE).fit_transform(means)


def silhouette(means: np.ndarray, groups: np.ndarray) -> float | None:
    """Return the mean silhouette, in [-1, 1], of the prototypes grouped by ``groups``, by Euclidean distance.

    1: groups are tight and far apart; below 0: a prototype is nearer to another group than to its own. None where it is
    undefined: a single group, or as many groups as prototypes.
    """
    num_groups = len(np.unique(groups))
    if not 2 <= num_groups < len(groups):
        return None
    return float(silhouette_score(means, groups))


def embeddings(gatherer: Gatherer) -> Numbers:
    """Return coordinates of every prototype of the first seed of each panel, and the silhouettes of all seeds.

    The silhouettes are taken between the prototypes themselves, not between their pictures.
    """
    silhouettes: list[Row] = []
    for found in gatherer.found():
        usable: dict[int, LocalPrototypes] = {}
        for run in found.runs:
            try:
                usable[run.seed] = local_prototypes(run)
            except UnusableRun as error:
                gatherer.numbers.problems.append(f"{found.place}: {error}")
        for seed, local in usable.items():
            row = {"by_class": silhouette(local.means, local.label), "by_client": silhouette(local.means, local.client)}
            silhouettes.append({**found.head(), "seed": seed, **row, "num_prototypes": len(local.means)})
        drawn = next((seed for seed, local in usable.items() if len(local.means) >= 3), None)
        if drawn is None:
            gatherer.numbers.missing.append(str(found.place))
            continue
        gatherer.numbers.rows += [found.head() | {"seed": drawn, **row} for row in embedding_rows(usable[drawn])]
    gatherer.numbers.tables["silhouettes"] = silhouettes
    text = (
        "t-SNE (perplexity min(30, n - 1), random state 42) of all local prototypes of the last round, first seed; "
        "silhouettes between the prototypes themselves, Euclidean"
    )
    return gatherer.close(text)


def embedding_rows(local: LocalPrototypes) -> list[Row]:
    """Return one row per prototype: client, class and coordinates."""
    coordinates = embed(local.means)
    return [
        {"client": int(client), "class": int(label), "x": float(x), "y": float(y)}
        for client, label, (x, y) in zip(local.client, local.label, coordinates, strict=True)
    ]


def mean_silhouette(rows: list[Row], key: str) -> float | None:
    """Return the mean of a silhouette over the seeds that have it; None if none has."""
    values = [row[key] for row in rows if row[key] is not None]
    return fmean(values) if values else None
