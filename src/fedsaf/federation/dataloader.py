"""What a client reads: prepared batches of its own parts, in the layout of its architecture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedsaf.data.augment import Augment
from fedsaf.data.batches import ClientData, batch_bounds

LEAST_BATCH = 5
"""Batch normalisation over two or three samples, where the last feature maps are of 1 x 1, has gradients some 1,000 to
10^6 times those of a batch of ten: one such step leaves running statistics under which a deep network overflows."""

LAST_BATCH: dict[str, tuple[bool | str, int]] = {
    "merge": (False, LEAST_BATCH),
    "drop": (True, 2),
    "drop_strict": ("strict", 1),
}
"""What happens to the incomplete last batch, as `batch_bounds` is told: whether it is dropped, and its least size."""

Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class ClientDataLoader:
    """The batches of one client.

    Attributes:
        data: its samples as they are stored, on the device where it works if they fit there.
        device: where batches go.
        prepare: makes a stored batch into one that the model reads, on the device.
        augment: what happens to training images before; clean and test passes show them as they are.
        memory_format: layout of the images of a batch.
        batch_size: B of training.
        eval_batch_size: samples per step of evaluation and clean passes.
        last_batch: ``merge`` (kept; fewer than five samples join the batch before them), ``drop`` (unless it is the
            only one) or ``drop_strict`` (a client smaller than a batch trains on nothing).
    """

    data: ClientData
    device: torch.device
    prepare: nn.Module
    augment: Augment
    memory_format: torch.memory_format
    batch_size: int
    eval_batch_size: int
    last_batch: str

    def __post_init__(self) -> None:
        if self.last_batch not in LAST_BATCH:
            raise ValueError(f"last_batch is {self.last_batch!r}; choose one of {', '.join(LAST_BATCH)}")

    @property
    def num_train(self) -> int:
        """Size of the training part."""
        return self.data.num_train

    @property
    def has_batches(self) -> bool:
        """Whether an epoch has at least one batch."""
        return bool(batch_bounds(self.num_train, self.batch_size, *LAST_BATCH[self.last_batch]))

    def train_pass(self, positions: Tensor) -> Iterator[Batch]:
        """Yield the training batches of one epoch, augmented from the ambient random stream.

        Args:
            positions: order of the samples of the training part.
        """
        drop_last, least = LAST_BATCH[self.last_batch]
        for x, y in self.data.train_batches(self.batch_size, positions, drop_last, least):
            yield self._prepared(x, y, self.augment)

    def clean_pass(self) -> Iterator[Batch]:
        """Yield the whole training part in stored order, for passes in evaluation mode."""
        for x, y in self.data.eval_batches("train", self.eval_batch_size):
            yield self._prepared(x, y)

    def test_pass(self) -> Iterator[Batch]:
        """Yield the whole test part."""
        for x, y in self.data.eval_batches("test", self.eval_batch_size):
            yield self._prepared(x, y)

    def _prepared(self, x: Tensor, y: Tensor, augment: Augment | None = None) -> Batch:
        x, y = x.to(self.device), y.to(self.device)
        if augment is not None:
            x = augment(x)
        return self.prepare(x.contiguous(memory_format=self.memory_format)), y
