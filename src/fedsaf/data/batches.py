"""Batches of one client: gathered from the pooled tensor, made into what a model reads on the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedsaf.core.types import ImageFacts, InputFacts, TokenFacts


def batch_bounds(n: int, batch_size: int, drop_last: bool | str, min_remainder: int) -> list[tuple[int, int]]:
    """Cut 0..n-1 into batches, (start, stop) each.

    Args:
        n: number of samples, 0 or more.
        batch_size: B, at least 1.
        drop_last: False keeps the incomplete last batch; True drops it, but n < B gives one batch of n; ``strict``
            drops it always, so that n < B gives no batch.
        min_remainder: a last batch smaller than this joins the one before it, if there is one; 2 spares batch
            normalisation a batch of one sample, 1 merges nothing.

    Raises:
        ValueError: B < 1, or an unknown ``drop_last``.

    >>> batch_bounds(201, 100, False, 2)
    [(0, 100), (100, 201)]
    >>> batch_bounds(250, 100, True, 2), batch_bounds(30, 100, True, 2), batch_bounds(30, 100, "strict", 2)
    ([(0, 100), (100, 200)], [(0, 30)], [])
    """
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size} must be at least 1")
    if drop_last not in (False, True, "strict"):
        raise ValueError(f"drop_last={drop_last!r} is unknown; choose false, true or strict")
    full = n // batch_size * batch_size
    bounds = [(start, start + batch_size) for start in range(0, full, batch_size)]
    if full == n or drop_last == "strict" or (drop_last and bounds):
        return bounds
    if bounds and n - full < min_remainder:
        return [*bounds[:-1], (bounds[-1][0], n)]
    return [*bounds, (full, n)]


@dataclass(frozen=True, eq=False)
class ClientData:
    """A client's view of the pooled tensors; nothing is copied until a batch is gathered.

    Attributes:
        inputs: (n, ...) of all clients; images contiguous or channels-last, and batches keep their layout.
        labels: (n,) int64 of all clients.
        train: indices of the training part, in training order.
        test: indices of the test part.
    """

    inputs: Tensor
    labels: Tensor
    train: Tensor
    test: Tensor

    @property
    def num_train(self) -> int:
        """Size of the training part."""
        return len(self.train)

    @property
    def num_test(self) -> int:
        """Size of the test part."""
        return len(self.test)

    def train_batches(
        self, batch_size: int, order: Tensor | None, drop_last: bool | str, min_remainder: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (x, y) of the training part, batched by `batch_bounds`.

        ``order`` has positions in the training part; None is the stored training order.
        """
        rows = self.train if order is None else self.train[order.to(self.train.device)]
        for start, stop in batch_bounds(len(rows), batch_size, drop_last, min_remainder):
            yield self._gather(rows[start:stop])

    def eval_batches(self, part: str, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (x, y) of the whole ``part``, train or test, in stored order."""
        if part not in ("train", "test"):
            raise ValueError(f"part={part!r} is unknown; choose train or test")
        rows = self.train if part == "train" else self.test
        for start, stop in batch_bounds(len(rows), batch_size, False, 1):
            yield self._gather(rows[start:stop])

    def _gather(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        if self.inputs.is_contiguous():
            return self.inputs.index_select(0, rows), self.labels.index_select(0, rows)
        pixels = self.inputs.permute(0, 2, 3, 1).index_select(0, rows)
        return pixels.permute(0, 3, 1, 2), self.labels.index_select(0, rows)


class Normalise(nn.Module):
    """Map uint8 pixels to (x / 255 - mean) / std in float32, on the device of the batch's choice.

    The memory format of the input is kept. Mean and standard deviation, which is positive, are those of x / 255.

    >>> Normalise((0.5,), (0.5,))(torch.tensor([[[[0, 255]]]], dtype=torch.uint8)).tolist()
    [[[[-1.0, 1.0]]]]
    """

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        """Fold both steps into x * scale + shift."""
        super().__init__()
        if len(set(mean)) == len(set(std)) == 1:  # one number for all channels spares the slow broadcast
            mean, std = mean[:1], std[:1]
        centre, spread = torch.tensor(mean, dtype=torch.float64), torch.tensor(std, dtype=torch.float64)
        self.scale: Tensor
        self.shift: Tensor
        self.register_buffer("scale", (1 / (255 * spread)).float().view(1, -1, 1, 1), persistent=False)
        self.register_buffer("shift", (-centre / spread).float().view(1, -1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (B, channels, s, s) uint8."""
        return x.to(torch.float32).mul_(self.scale).add_(self.shift)


class Cast(nn.Module):
    """Change the type of stored inputs: token ids to int64, word counts to float32.

    >>> Cast(torch.float32)(torch.tensor([[3]], dtype=torch.uint8))
    tensor([[3.]])
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        """Cast (B, ...)."""
        return x.to(self.dtype)


def preparation(facts: InputFacts) -> nn.Module:
    """Return what makes a stored batch into one that models read."""
    if isinstance(facts, ImageFacts):
        return Normalise(facts.mean, facts.std)
    return Cast(torch.int64 if isinstance(facts, TokenFacts) else torch.float32)
