"""A model of two parameters whose local training can be worked out by hand, put through the real local loop."""

from __future__ import annotations

from functools import partial

import torch
from lightning.fabric import Fabric
from torch import nn

from fedsaf.assembly import build
from fedsaf.core.types import ClientResult, ServerContext
from fedsaf.federation.client import FederatedClient
from fedsaf.federation.local_training import LocalTraining, LocalTrainingPlan
from fedsaf.federation.method import Method
from tests.federation.harness import origin

LR = 0.5


class Scale(nn.Module):
    """x -> w * x, entry by entry."""

    def __init__(self, w):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(w))


class Diagonal(nn.Module):
    """z = w * x with w in R^2; the logits are z itself, so softmax(z) are the probabilities of two classes."""

    def __init__(self, w):
        super().__init__()
        self.backbone, self.head = Scale(w), nn.Identity()

    def features(self, x):
        return self.backbone.weight * x

    def forward(self, x):
        z = self.features(x)
        return z, self.head(z)


class Feed:
    """The same batch again and again: every local epoch is one step on (x, y)."""

    has_batches = True

    def __init__(self, x, y, steps_per_epoch=1):
        self.batch = torch.tensor(x), torch.tensor(y)
        self.steps_per_epoch = steps_per_epoch

    @property
    def num_train(self):
        return len(self.batch[1])

    def train_pass(self, positions):
        return iter([self.batch] * self.steps_per_epoch)

    def clean_pass(self):
        return iter([self.batch])


def method_of(*words: str) -> Method:
    return build(origin(words, None).config, "method")


def context(w, num_clients=1, seed=0):
    """What aggregators are told: C = d = 2, the server starts from w."""
    start = {"backbone.weight": torch.tensor(w)}
    return ServerContext(2, 2, seed=seed, rounds=4, num_clients=num_clients, initial=lambda scope: dict(start))


def make_client(method: Method, w, momentum=0.0, auxiliary=None) -> FederatedClient:
    return FederatedClient(
        model=Diagonal(w),
        objective=method.objective,
        optimizer=partial(torch.optim.SGD, lr=LR, momentum=momentum),
        num_classes=2,
        feature_dim=2,
        rounds=4,
        auxiliary=auxiliary or {},
        learning_rates={},
        forward_rule=method.forward_rule,
    )


def train(method: Method, client: FederatedClient, loader: Feed, broadcast, epochs, round=0) -> ClientResult:
    """One client's turn of the real local loop."""
    fabric = Fabric(accelerator="cpu", devices=1)
    plan = LocalTrainingPlan(seed=0, local_epochs=epochs, shuffle="fixed")
    work = LocalTraining(fabric, method.channels, method.callbacks, method.predictors, plan, lambda: False)
    return work.train(0, client, loader, broadcast, round)
