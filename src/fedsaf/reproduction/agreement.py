"""What runs side by side have in common: numbers are compared only between runs that differ in what labels name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fedsaf.core.identity import INCIDENTAL
from fedsaf.reproduction.collect import RecordedRun
from fedsaf.reproduction.selection import DATASET, Requirement

OF_TRAINING = (
    "optimizer",
    "rounds",
    "local_epochs",
    "batch_size",
    "feature_dim",
    "protocol",
    "participation_ratio",
    "fabric",
)
"""Parts of a configuration in which all runs of a comparison agree."""
OF_PLACE = ("dataset", "partition", "num_clients", "validation", "augment", "eval_every")
"""Parts in which runs agree that stand under the same label of them, and of the data set."""
OF_SETTING = ("model_group",)
"""Parts in which runs agree that stand under the same label of the setting too."""
FREE = ("experiment", "scale", "paper", "scenario", "method", "dataset", "partition", "model_group", "fabric", "seed")
"""Words of a command line that choose what labels look at, or the seed."""
UNSEEN = (*INCIDENTAL, "hydra", "diagnostics_every", "dataset.path", "eval_batch_size", "fabric.deterministic")
"""Words, with all below them, that change no number."""
WEIGHTS = {"alignment.proto_weight", "alignment.inst_weight"}
ABSENT = object()

Placed = tuple[RecordedRun, Requirement]


def differences(placed: Iterable[Placed]) -> list[str]:
    """Return what a fair comparison shares, no label names, and the runs do not have in common.

    Args:
        placed: runs, each with what its labels required of it.
    """
    placed = list(placed)
    named = {key for _, required in placed for key in required}
    together: dict[tuple, list[Mapping[str, Any]]] = {}
    for run, required in placed:
        parts: dict[str, dict[str, Any]] = {}
        for key, value in run.values.items():
            parts.setdefault(key.partition(".")[0], {})[key] = value
        for part in (*OF_TRAINING, *OF_PLACE, *OF_SETTING):
            together.setdefault((part, *_labels_of(part, required)), []).append(parts.get(part, {}))
    found = set()
    for runs in together.values():
        for key in {key for values in runs for key in values} - named:
            if not is_unseen(key) and len({repr(values.get(key, ABSENT)) for values in runs}) > 1:
                found.add(key)
    return sorted(found)


def _labels_of(part: str, required: Requirement) -> tuple[str, ...]:
    """Return under which labels of a part runs must agree in it; () if under all."""
    if part in OF_TRAINING:
        return ()
    labels = (part, DATASET, "scenario") if part in OF_SETTING else (part, DATASET)
    return tuple(repr(required.get(label)) for label in labels)


def added_words(run: RecordedRun, required: Requirement) -> list[str]:
    """Return the words by which a run left the experiment of a paper, other than those that its labels name."""
    return [word for word in run.overrides if not _is_expected(word, required)]


def _is_expected(word: str, required: Requirement) -> bool:
    key = word.lstrip("+").partition("=")[0].replace("/", ".")
    if key in required or key in FREE:
        return True
    if key == "levels":  # a group that sets both weights and nothing else
        return required.keys() >= WEIGHTS
    return is_unseen(key)


def is_unseen(key: str) -> bool:
    """Return whether a key, or a node above it, changes no number."""
    return any(key == unseen or key.startswith(f"{unseen}.") for unseen in UNSEEN)
