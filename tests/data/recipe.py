"""Sources with defaults, and one small federated data set, for this process and for fresh ones."""

from dataclasses import fields
from io import BytesIO

import numpy as np
from PIL import Image

from fedsaf.data.federated import FederatedData, federate
from fedsaf.data.partition.label_shift import Dirichlet
from fedsaf.data.sources.embedded import Synthetic

DEFAULTS = {
    **{"image_size": None, "mode": "auto", "max_per_class": None, "frozen_crop": False, "memory_limit_gib": 4},
    **{"mean": 0.5, "std": 0.5, "max_samples": None, "num_samples": 60, "num_classes": 4, "channels": 3, "noise": 10.0},
    **{"form": "tokens", "max_length": 6, "vocabulary_size": None, "vocabulary_from": "train"},
    **{"path": None, "splits": None, "image_column": None, "text_column": None, "label_column": None},
    **{"group_column": None, "group_names": None, "num_groups": None, "share": 0.3, "hub_id": None},
}


def source_of(kind, **options):
    """A source of this kind, whose options are the defaults above unless given."""
    own = {field.name: DEFAULTS[field.name] for field in fields(kind) if field.name in DEFAULTS} | options
    return kind(**{name: str(value) if name == "path" and value is not None else value for name, value in own.items()})


def make(num_clients=20, alpha=0.05, split="stratified", generator="numpy", seed=1, validation=None) -> FederatedData:
    source = source_of(Synthetic, image_size=4, num_samples=500, num_classes=10, channels=1, noise=5.0)
    rule = Dirichlet(alpha=alpha, min_samples=40, max_tries=50, repair=True, seed=seed, generator=generator)
    return federate(source.load(1), rule, num_clients, split, 0.75, validation)


def encoded(image, kind="png", **options) -> bytes:
    """The bytes of an image file."""
    file = BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(file, kind, **options)
    return file.getvalue()


def png(level: int, size: int = 8) -> bytes:
    """A PNG whose pixels all have one level in their first channel."""
    array = np.zeros((size, size, 3), np.uint8)
    array[..., 0] = level
    return encoded(array)


def images(*levels: int) -> list[dict]:
    """Images of these levels, as the hub stores them."""
    return [{"bytes": png(level), "path": None} for level in levels]
