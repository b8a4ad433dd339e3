"""What the prototype constructors share: pairs of a round, the message of existing rows, strict restoring.

Dimension letters: K classes of a message, d feature dimension, C classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from fedsaf.core.types import Message, Upload


def checked_messages(uploads: Sequence[Upload], num_classes: int, feature_dim: int) -> Iterator[Message]:
    """Yield the messages in the order of client ids; an empty one (K = 0) is a message like any other.

    Raises:
        ValueError: a label outside [0, C), or means that are not (K, d).
        FloatingPointError: NaN or Inf in the means.
    """
    for upload in sorted(uploads, key=lambda upload: upload.client):
        labels, means = upload.message["labels"], upload.message["means"]
        if means.shape != (len(labels), feature_dim):
            raise ValueError(
                f"means of client {upload.client} must be ({len(labels)}, {feature_dim}), got {tuple(means.shape)}"
            )
        if ((labels < 0) | (labels >= num_classes)).any():
            raise ValueError(f"labels of client {upload.client} must lie in [0, {num_classes}), got {labels.tolist()}")
        if not means.isfinite().all():
            raise FloatingPointError(f"prototypes of client {upload.client} hold NaN or Inf")
        yield upload.message


def existing_rows(values: Tensor, mask: Tensor, seen: Tensor | None = None) -> Message | None:
    """Return the rows whose mask is set, with their labels ascending; None if there is none.

    Args:
        values: (C, d).
        mask: (C,) bool.
        seen: (C,) bool, classes ever uploaded, where a client is to be told.

    >>> import torch
    >>> existing_rows(torch.tensor([[1.0], [2.0]]), torch.tensor([False, True]))
    {'labels': tensor([1]), 'values': tensor([[2.]])}
    """
    labels = mask.nonzero().squeeze(1)
    if not len(labels):
        return None
    return {"labels": labels, "values": values[labels]} | ({} if seen is None else {"seen": seen[labels]})
