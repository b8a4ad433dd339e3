"""What replaces data that are not to be had, so that every target runs anywhere; such runs are labelled."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsaf.data.sources.named import local_place

_IMAGES = ("dataset=digits", "dataset.mode=RGB")  # colour, since settings may name means of three channels
STAND_INS: dict[str, tuple[str, ...]] = {
    "cifar10": _IMAGES,
    "cifar100": _IMAGES,
    "fashion_mnist": _IMAGES,
    "flowers102": _IMAGES,
    "tiny_imagenet": _IMAGES,
    "pacs": ("dataset=synthetic", "dataset.group_names=[art_painting,cartoon,photo,sketch]"),
    "domainnet": (
        "dataset=synthetic",
        "dataset.group_names=[clipart,infograph,painting,quickdraw,real,sketch]",
    ),
    "office_caltech10": ("dataset=synthetic", "dataset.group_names=[amazon,caltech10,dslr,webcam]"),
    "ag_news": ("dataset=synthetic_text", "dataset.num_classes=4"),
    "amazon_review": ("dataset=synthetic_text", "dataset.num_classes=2", "dataset.num_groups=4"),
    "shakespeare": (
        "dataset=synthetic_text",
        "dataset.num_classes=8",
        "dataset.num_groups=40",
        "partition.min_samples=4",
    ),
}
"""Words that choose embedded data of the same kind: images, images by domain, texts, texts by user."""


_CLASSES = 10
"""Of the embedded images."""


def stand_in_words(name: str, config: Mapping[str, Any], scale: str, always: bool = False) -> list[str]:
    """Return the words that replace a data set, or none.

    At scale ``smoke`` every named set is replaced, at ``small`` one that is neither at ``dataset.path``, nor below
    ``$DATA_ROOT``, nor in the hub's cache; at ``full`` none is, and the run says what is missing.

    Args:
        name: choice of the group ``dataset``.
        config: resolved configuration with this data set. Where each client holds more classes than the embedded images
            have, synthetic ones with twice as many stand in.
        scale: smoke, small or full.
        always: whether it is replaced at ``small`` wherever it is.
    """
    if name not in STAND_INS or scale == "full":
        return []
    if scale == "small" and not always and _is_here(name, config["dataset"]):
        return []
    words, needed = STAND_INS[name], config["partition"].get("classes_per_client", 0)
    if words is _IMAGES and needed > _CLASSES:
        words = ("dataset=synthetic", f"dataset.num_classes={2 * needed}")
    return [*words, f"stand_in_for={name}"]


def _is_here(name: str, dataset: Mapping[str, Any]) -> bool:
    return local_place(dataset["name"], dataset["path"]) is not None or _is_cached(dataset.get("hub_id"))


def _is_cached(hub_id: str | None) -> bool:
    """Return whether the hub library's cache has a folder of this set, without importing that library."""
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    cache = Path(os.environ.get("HF_DATASETS_CACHE", home / "datasets")).expanduser()
    return hub_id is not None and (cache / hub_id.replace("/", "___")).is_dir()
