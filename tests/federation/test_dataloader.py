"""What becomes of the incomplete last batch of a client."""

import pytest
import timm
import torch
import torch.nn.functional as F

from fedsaf.core.seeding import seeded
from fedsaf.data.batches import batch_bounds
from fedsaf.federation.dataloader import LAST_BATCH, LEAST_BATCH


def sizes(n, batch_size, last_batch):
    return [stop - start for start, stop in batch_bounds(n, batch_size, *LAST_BATCH[last_batch])]


@pytest.mark.parametrize(
    ("n", "merged", "dropped"),
    [
        (20, [10, 10], [10, 10]),
        (21, [10, 11], [10, 10]),
        (24, [10, 14], [10, 10]),
        (25, [10, 10, 5], [10, 10]),
        (4, [4], [4]),
        (0, [], []),
    ],
)
def test_a_few_left_over_join_the_batch_before(n, merged, dropped):
    assert sizes(n, 10, "merge") == merged
    assert sizes(n, 10, "drop") == dropped


def test_batches_that_are_small_anyway_stay():
    assert sizes(9, 3, "merge") == [3, 3, 3]
    assert sizes(5, 2, "merge") == [2, 3]


def gradient(size):
    """Return the norm of the gradient of an untrained ResNet-18 on a batch of this size."""
    with seeded(0, "test", 0, 0):
        net = timm.create_model("resnet18", num_classes=10, zero_init_last=False)
        x, y = torch.randn(size, 3, 32, 32), torch.arange(size) % 10
    F.cross_entropy(net(x), y).backward()
    return sum(p.grad.norm() ** 2 for p in net.parameters()).sqrt().item()


def test_why_a_few_samples_are_no_batch():
    """Its last feature maps are of 1 x 1: two or three samples make gradients explode, five no longer do."""
    usual = gradient(10)
    assert gradient(2) > 50 * usual
    assert gradient(3) > 5 * usual
    assert gradient(LEAST_BATCH) < 4 * usual
