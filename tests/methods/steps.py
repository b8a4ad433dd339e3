"""One training step as terms see it, with drawn values, and a stand-in for the client that halves unpack into."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

import torch
from torch import nn

from fedsaf.assembly import build
from fedsaf.core.types import StepView
from tests.federation.harness import origin


@cache
def config_of(*words):
    """The composed method, composed once for the same words."""
    return origin(words, None).config["method"]


def method_of(*words):
    """A method of its own for every call."""
    return build({"method": config_of(*words)}, "method")


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def stand_in(num_classes=4, feature_dim=3):
    """A client with a linear head and nothing to remember."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        head = nn.Linear(feature_dim, num_classes)
    return SimpleNamespace(
        received={},
        memory={},
        scratch={},
        device=torch.device("cpu"),
        num_classes=num_classes,
        feature_dim=feature_dim,
        model=SimpleNamespace(head=head),
        auxiliary={},
    )


def step(client, labels, round=0, rounds=4, seed=1):
    """A step on drawn features of these labels, with the logits of the client's head."""
    y = torch.tensor(labels)
    z = draw(len(y), client.feature_dim, seed=seed).requires_grad_()
    return StepView(
        x=z.detach(),
        y=y,
        z=z,
        logits=client.model.head(z),
        round=round,
        rounds=rounds,
        received=client.received,
        model=client.model,
        auxiliary=client.auxiliary,
        memory=client.memory,
        scratch=client.scratch,
    )


def array(tensor):
    return tensor.detach().double().numpy()
