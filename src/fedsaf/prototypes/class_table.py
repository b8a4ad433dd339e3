"""One row per class, wherever it is: local and global prototypes, mean logits, guiding vectors, anchors.

Dimension letters: K classes of a message, A pairs of all uploads, d width of a row, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedsaf.core.types import Message, Upload


@dataclass(frozen=True)
class ClassTable:
    """One row per class, and which of the rows exist: the prototypes ``(P, m)`` of a client or of the server.

    Attributes:
        values: (C, d) float32; rows whose mask is False are zero and must not be read.
        mask: (C,) bool, m_c of the papers.
        counts: (C,) int64, samples behind each row; None where nobody counts.
        seen: (C,) bool, the classes that some client has uploaded, where a constructor also has vectors for others;
            None if that makes no difference.
    """

    values: Tensor
    mask: Tensor
    counts: Tensor | None = None
    seen: Tensor | None = None

    @classmethod
    def empty(cls, num_classes: int, width: int) -> ClassTable:
        """Return (C, d) zeros of which no row exists."""
        return cls(torch.zeros(num_classes, width), torch.zeros(num_classes, dtype=torch.bool))

    @classmethod
    def full(cls, values: Tensor, seen: Tensor | None = None) -> ClassTable:
        """Return the table in which every class has its row."""
        return cls(values, torch.ones(len(values), dtype=torch.bool, device=values.device), seen=seen)

    @classmethod
    def of_rows(cls, labels: Tensor, rows: Tensor, num_classes: int, **parts: Tensor) -> ClassTable:
        """Return the table with these rows, (K, d), at these labels, (K,); differentiable in the rows.

        Args:
            labels: distinct, in [0, C).
            rows: their values.
            num_classes: C.
            parts: ``counts`` (K,) and ``seen`` (K,), where there are any.

        >>> ClassTable.of_rows(torch.tensor([1]), torch.tensor([[2.0]]), num_classes=2).values.tolist()
        [[0.0], [2.0]]
        """

        def scattered(part: Tensor) -> Tensor:
            whole = part.new_zeros(num_classes, *part.shape[1:])
            whole[labels] = part
            return whole

        mask = scattered(torch.ones_like(labels, dtype=torch.bool))
        return cls(scattered(rows), mask, **{name: scattered(part) for name, part in parts.items()})

    @classmethod
    def from_message(cls, message: Message, num_classes: int, device: torch.device | str) -> ClassTable:
        """Return what `to_message` packed; parts of other names are left to others."""
        found = {name: message[name].to(device) for name in ("counts", "seen") if name in message}
        return cls.of_rows(message["labels"].to(device), message["values"].to(device), num_classes, **found)

    @property
    def labels(self) -> Tensor:
        """(K,) int64, the classes whose rows exist, ascending."""
        return self.mask.nonzero().squeeze(1)

    @property
    def rows(self) -> Tensor:
        """(K, d), the rows that exist."""
        return self.values[self.labels]

    @property
    def answerable(self) -> Tensor:
        """(C,) bool, the classes that a prediction by prototypes may answer."""
        return self.mask if self.seen is None else self.mask & self.seen

    def to_message(self) -> Message:
        """Return ``labels`` (K,), ``values`` (K, d) and, where known, ``counts`` and ``seen`` (K,); K may be 0."""
        labels = self.labels
        parts = {"values": self.values, "counts": self.counts, "seen": self.seen}
        return {"labels": labels} | {name: part[labels] for name, part in parts.items() if part is not None}

    def to_broadcast(self) -> Message | None:
        """Return `to_message`, or None while there is no row."""
        return self.to_message() if bool(self.mask.any()) else None


class Pairs(NamedTuple):
    """The rows of all uploads of a round in the order of client ids: pairs (prototype, class).

    Attributes:
        labels: (A,) int64; a class has one pair for each client that holds it.
        values: (A, d).
        counts: (A,) int64, or None if some client sent none.
    """

    labels: Tensor
    values: Tensor
    counts: Tensor | None


def uploaded_pairs(uploads: Sequence[Upload], num_classes: int, width: int) -> Pairs:
    """Return all pairs of a round; an empty message (K = 0) is a message like any other.

    Raises:
        ValueError: a label outside [0, C), or values that are not (K, d).
        FloatingPointError: NaN or Inf in the values.
    """
    messages = [upload.message for upload in sorted(uploads, key=lambda upload: upload.client)]
    for upload in uploads:
        labels, values = upload.message["labels"], upload.message["values"]
        if values.shape != (len(labels), width):
            raise ValueError(
                f"values of client {upload.client} must be ({len(labels)}, {width}), got {tuple(values.shape)}"
            )
        if ((labels < 0) | (labels >= num_classes)).any():
            raise ValueError(f"labels of client {upload.client} must lie in [0, {num_classes}), got {labels.tolist()}")
        if not values.isfinite().all():
            raise FloatingPointError(f"prototypes of client {upload.client} hold NaN or Inf")
    none = torch.zeros(0, dtype=torch.int64)
    counted = all("counts" in message for message in messages)
    return Pairs(
        torch.cat([none, *(message["labels"] for message in messages)]),
        torch.cat([torch.zeros(0, width), *(message["values"] for message in messages)]),
        torch.cat([none, *(message["counts"] for message in messages)]) if counted else None,
    )
