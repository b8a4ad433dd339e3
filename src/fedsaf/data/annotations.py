"""Labels and groups of a source, mapped to ids once, and what is left of them in a subset."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from fedsaf.data.datasets import parts_of_subset
from fedsaf.data.labels import EncodedLabels, encode_groups, encode_labels

log = logging.getLogger(__name__)


class Annotated(Protocol):
    """What every source finds beside the content of its samples; see `RawImages` and `RawTexts`."""

    name: str
    labels: Sequence[Any]
    parts: dict[str, int]
    class_names: tuple[str, ...] | None
    groups: Sequence[Any] | None
    group_names: tuple[str, ...] | None


@dataclass(frozen=True)
class Annotations:
    """Everything but the content of n samples.

    Attributes:
        name: of the data set.
        labels: class ids and their names.
        groups: group ids and their names, or None.
        parts: official part to number of samples, in order.
    """

    name: str
    labels: EncodedLabels
    groups: EncodedLabels | None
    parts: dict[str, int]

    @classmethod
    def of(cls, raw: Annotated) -> Annotations:
        """Map labels and groups to ids; a mapping that changes labels is announced.

        Raises:
            ValueError: a label or group is missing or unusable.
        """
        labels = encode_labels(raw.labels, raw.class_names, f"dataset {raw.name}: label")
        groups = None
        if raw.groups is not None:
            groups = encode_groups(raw.groups, raw.group_names, f"dataset {raw.name}: group")
        if labels.mapping:
            log.info("dataset %s: labels mapped %s", raw.name, labels.mapping)
        return cls(raw.name, labels, groups, raw.parts)

    def ids(self, keep: np.ndarray) -> list[np.ndarray]:
        """Return the class ids, and the group ids if there are any, at these positions."""
        return [encoded.ids[keep] for encoded in (self.labels, self.groups) if encoded is not None]

    def fields(self, keep: np.ndarray) -> dict[str, Any]:
        """Return the fields of `Samples` that follow for the samples at these ascending positions."""
        groups = self.groups
        return {
            "name": self.name,
            "labels": torch.from_numpy(self.labels.ids[keep]),
            "class_names": self.labels.names,
            "groups": None if groups is None else torch.from_numpy(groups.ids[keep]),
            "group_names": () if groups is None else groups.names,
            "label_mapping": self.labels.mapping,
            "parts": parts_of_subset(self.parts, keep),
        }
