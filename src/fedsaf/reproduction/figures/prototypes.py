"""Local prototypes of the last round in two dimensions, and whether they cluster by class or by client."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from safetensors import SafetensorError
from safetensors.numpy import load_file

from fedsaf.reproduction.soundness import UnusableRun

UPLOADS, BROADCAST = "uploads_prototypes.safetensors", "prototypes.safetensors"
PERPLEXITY, RANDOM_STATE = 30, 42
"""As in the paper's figure; the perplexity is capped by the number of prototypes."""
MIN_ROWS = 3
"""Fewer prototypes have no neighbourhoods."""


class LocalPrototypes(NamedTuple):
    """The prototypes that the participants of the last round uploaded.

    Attributes:
        client: (n,) int, who.
        label: (n,) int, of which class.
        means: (n, d) float.
    """

    client: np.ndarray
    label: np.ndarray
    means: np.ndarray


def local_prototypes(run: Any) -> LocalPrototypes:
    """Read the local prototypes of a run, or of a run folder.

    Raises:
        UnusableRun: as of `read_prototypes`.
    """
    folder = run if isinstance(run, Path) else run.folder
    return LocalPrototypes(*read_prototypes(folder / UPLOADS, "client", "labels", "means"))


def read_prototypes(path: Path, *parts: str) -> list[np.ndarray]:
    """Read parts of a file of prototypes: ids, each (n,), and last the prototypes themselves, (n, d).

    Raises:
        UnusableRun: the file is missing, damaged, of other shapes or holds numbers that are not finite; says which.
    """
    where = f"{path.parent.name}: {path.name}"
    try:
        tensors = load_file(path)
        found = [tensors[part] for part in parts]
    except FileNotFoundError:
        raise UnusableRun(
            f"{path.parent.name} has no {path.name}: no class rows travelled at its end, or it was made before runs "
            "kept them"
        ) from None
    except (SafetensorError, KeyError, OSError) as error:
        raise UnusableRun(f"{where} cannot be read: {error}") from error
    means = found[-1]
    if means.ndim != 2 or any(ids.shape != means.shape[:1] for ids in found[:-1]):
        shapes = ", ".join(f"{part} {one.shape}" for part, one in zip(parts, found, strict=True))
        raise UnusableRun(f"{where} holds {shapes}; expected (n,), and (n, d) of {parts[-1]}")
    if not np.isfinite(means).all():
        raise UnusableRun(f"{where} holds numbers that are not finite")
    return found


def silhouette(means: np.ndarray, groups: np.ndarray) -> float | None:
    """Return the mean silhouette, in [-1, 1], of the prototypes grouped by ``groups``, by Euclidean distance.

    1: groups are tight and far apart; below 0: a prototype is nearer to another group than to its own. None where it is
    undefined: a single group, or as many groups as prototypes.
    """
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(means, groups)) if 2 <= len(np.unique(groups)) < len(groups) else None


def silhouettes(local: LocalPrototypes) -> dict[str, float | None]:
    """Return the silhouettes ``by_class`` and ``by_client``, between the prototypes themselves, not their pictures."""
    return {"by_class": silhouette(local.means, local.label), "by_client": silhouette(local.means, local.client)}


def embed(local: LocalPrototypes) -> pd.DataFrame:
    """Return client, class and t-SNE coordinates of each prototype: perplexity min(30, n - 1), fixed random state.

    Raises:
        ValueError: fewer than three prototypes.
    """
    from sklearn.manifold import TSNE

    if len(local.means) < MIN_ROWS:
        raise ValueError(f"means: got {len(local.means)} prototypes, expected at least {MIN_ROWS} to embed")
    tsne = TSNE(n_components=2, perplexity=min(PERPLEXITY, len(local.means) - 1), random_state=RANDOM_STATE)
    x, y = tsne.fit_transform(local.means).astype(float).T
    return pd.DataFrame({"client": local.client, "class": local.label, "x": x, "y": y})
