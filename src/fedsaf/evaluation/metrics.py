"""Accuracies: per client by torchmetrics, and what is said about all clients together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torchmetrics.classification import MulticlassAccuracy

from fedsaf.core.contracts import Client, Predictor


class ClientAccuracy:
    """Accuracy of one client under several prediction rules, in one pass over its test part.

    Args:
        predictors: prediction rules by name.
        num_classes: C.
        device: where the counts are kept until `compute`.
    """

    def __init__(self, predictors: Mapping[str, Predictor], num_classes: int, device: torch.device) -> None:
        self.predictors = predictors
        # One more class, so that the answer "none" (-1) has a place and can never be right.
        self.metrics = {
            name: MulticlassAccuracy(num_classes + 1, average="micro", validate_args=False).to(device)
            for name in predictors
        }
        self.none = num_classes

    def update(self, client: Client, z: torch.Tensor, logits: torch.Tensor, y: torch.Tensor) -> None:
        """Score one batch."""
        for name, predictor in self.predictors.items():
            answer = predictor(client, z, logits)
            self.metrics[name].update(torch.where(answer < 0, self.none, answer), y)

    def compute(self) -> dict[str, int]:
        """Return the number of hits by rule."""
        return {name: int(cast(torch.Tensor, metric.tp).sum()) for name, metric in self.metrics.items()}


def summarise_accuracies(hits: Sequence[int], totals: Sequence[int]) -> dict[str, float | None]:
    """Describe the accuracies of all clients, as fractions.

    Args:
        hits: correct answers of each client.
        totals: test samples of each client; clients without any are left out of everything but ``pooled``, where they
            weigh nothing.

    Returns:
        ``pooled`` (hits over samples, the accuracy of the HtFL papers), ``client_mean`` (every client counts the same),
        ``client_std`` (population standard deviation over clients), ``worst_10`` (mean over the worst 10 % of the
        clients, at least one). All None if no client has a test sample.

    >>> summarise_accuracies([10, 0], [10, 90])
    {'pooled': 0.1, 'client_mean': 0.5, 'client_std': 0.5, 'worst_10': 0.0}
    """
    rates = sorted(h / n for h, n in zip(hits, totals, strict=True) if n > 0)
    if not rates:
        return dict.fromkeys(("pooled", "client_mean", "client_std", "worst_10"))
    mean = math.fsum(rates) / len(rates)
    worst = rates[: max(1, math.ceil(0.1 * len(rates)))]
    return {
        "pooled": sum(hits) / sum(totals),
        "client_mean": mean,
        "client_std": math.sqrt(math.fsum((r - mean) ** 2 for r in rates) / len(rates)),
        "worst_10": math.fsum(worst) / len(worst),
    }
