"""What the papers measure about prototypes beside accuracy: dimensionality, margins, shape and rigid parts.

Dimension letters: K classes, d feature dimension, N clients.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedsaf.core.types import Message, Upload
from fedsaf.losses.decomposition import decompose
from fedsaf.losses.numerics import unit_rows
from fedsaf.losses.structural import NORM_FLOOR, centre
from fedsaf.prototypes.margins import nearest_distances

ENERGY = 0.9
"""Share of the squared singular values that the counted directions must hold."""


def effective_dimension(prototypes: Tensor, energy: float = ENERGY) -> int:
    """Effective dimensionality of stacked prototypes, Fig. 1 of FedSAF.

    Rows are normalised, then centred; the result is the smallest k whose k largest squared singular values hold at
    least the share ``energy`` of all.

    Args:
        prototypes: (n, d), the prototypes of all clients.
        energy: in (0, 1].

    Returns:
        Between 1 and min(n - 1, d); 0 if the normalised rows do not differ (n <= 1 included).

    >>> effective_dimension(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.1]]))
    2
    """
    if len(prototypes) < 2:
        return 0
    X = centre(unit_rows(prototypes.double(), NORM_FLOOR))
    spectrum = torch.linalg.eigvalsh(X @ X.T if len(X) <= X.shape[1] else X.T @ X).flip(0).clamp_min(0)
    total = spectrum.sum()
    if total <= len(X) * torch.finfo(torch.float64).eps:
        return 0
    return min(int((spectrum.cumsum(0) < energy * total).sum()) + 1, len(spectrum))


def margins(prototypes: Tensor) -> dict[str, float]:
    """Prototype margins of FedTGP: mean, min and max over classes of the distance to the nearest other class.

    Args:
        prototypes: (K, d), one row per class.

    Returns:
        ``margin_mean``, ``margin_min``, ``margin_max``; empty for K < 2, where no other class exists.
    """
    if len(prototypes) < 2:
        return {}
    nearest = nearest_distances(prototypes.double())
    return {
        "margin_mean": nearest.mean().item(),
        "margin_min": nearest.min().item(),
        "margin_max": nearest.max().item(),
    }


class PrototypeDiagnostics:
    """All diagnostics of one round's prototypes."""

    def __call__(
        self, uploads: Sequence[Upload], broadcast: Message | None
    ) -> dict[str, float | dict[int, dict[str, float]]]:
        """Measure local prototypes, global prototypes, and the one against the other.

        A key whose value is undefined is left out: margins of fewer than two classes, parts where client and server
        share no class, everything global before the first broadcast. No value is NaN or Inf.

        Args:
            uploads: messages with ``labels`` (K,) and ``values`` (K, d); K may be 0.
            broadcast: message with ``labels`` and ``values`` of the existing global prototypes, or None.

        Returns:
            ``effective_dimension`` of the stacked uploads, ``global_classes`` (how many prototypes exist),
            ``global_margin_{mean,min,max}``; ``local_margin_{mean,min,max}``, ``coordinate``, ``shape``, ``rigid``:
            plain means over the clients that have them; ``per_client``: by client id ``classes``,
            ``margin_{mean,min,max}``, ``coordinate``, ``shape``, ``rigid`` (Prop. 1 of FedSAF; sums over the classes
            shared with the server).
        """
        uploads = sorted(uploads, key=lambda upload: upload.client)
        per_client = {upload.client: self._client(upload.message, broadcast) for upload in uploads}
        stacked = [upload.message["values"] for upload in uploads if len(upload.message["labels"])]
        report: dict[str, float | dict[int, dict[str, float]]] = {
            "effective_dimension": float(effective_dimension(torch.cat(stacked))) if stacked else 0.0,
            "global_classes": float(len(broadcast["labels"])) if broadcast is not None else 0.0,
        }
        if broadcast is not None:
            report |= {f"global_{name}": value for name, value in margins(broadcast["values"]).items()}
        for name in ("margin_mean", "margin_min", "margin_max", "coordinate", "shape", "rigid"):
            values = [row[name] for row in per_client.values() if name in row]
            if values:
                report[f"local_{name}" if name.startswith("margin") else name] = sum(values) / len(values)
        return report | {"per_client": per_client}

    @staticmethod
    def _client(message: Message, broadcast: Message | None) -> dict[str, float]:
        row = {"classes": float(len(message["labels"])), **margins(message["values"])}
        if broadcast is None:
            return row
        ours, theirs = (message["labels"][:, None] == broadcast["labels"]).nonzero(as_tuple=True)
        if len(ours):
            row |= decompose(broadcast["values"][theirs], message["values"][ours])._asdict()
        return row
