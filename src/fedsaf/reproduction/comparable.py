"""Which runs may stand side by side: one answer for tables, claims, figures and notebooks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from fedsaf.core.config import flatten
from fedsaf.core.identity import INCIDENTAL, identity
from fedsaf.reproduction.frame import NO_RESULT

SHARED = (
    *("dataset", "partition", "num_clients", "validation", "model_group", "augment", "feature_dim"),
    *("optimizer", "rounds", "local_epochs", "batch_size", "participation_ratio", "protocol", "fabric", "eval_every"),
)
"""Parts of a configuration that compared runs have in common: data, split, clients, models, optimiser, protocol,
precision, and when they are evaluated. The rest is what one compares: methods, losses, constructors, their numbers."""
ABSENT = "absent"


def comparable(runs: pd.DataFrame | Iterable[Mapping[str, Any]], except_for: Collection[str] = ()) -> list[str]:
    """Return the keys in which runs differ that may not stand side by side; [] if they may.

    >>> comparable([{"rounds": 3, "seed": 0}, {"rounds": 3, "seed": 1}])
    []
    >>> comparable([{"rounds": 3, "optimizer": {"lr": 0.1}}, {"rounds": 4, "optimizer": {"lr": 0.2}}], ["rounds"])
    ['optimizer.lr']

    Args:
        runs: a frame of `fedsaf.runs`, or resolved configurations.
        except_for: keys that are named beside the numbers, and may differ with all below them: groups or dotted keys.
    """
    configs = _configs(runs) if isinstance(runs, pd.DataFrame) else list(runs)
    free = (*except_for, *NO_RESULT)
    values = [{k: repr(v) for k, v in flatten(identity(one)) if k.partition(".")[0] in SHARED} for one in configs]
    different = {key for one in values for key in one if len({other.get(key, ABSENT) for other in values}) > 1}
    return sorted(key for key in different if not any(key == name or key.startswith(f"{name}.") for name in free))


def changes_nothing(word: str) -> bool:
    """Return whether a word of the command line cannot change a number.

    >>> changes_nothing("fabric.threads=2"), changes_nothing("rounds=2")
    (True, False)
    """
    key = word.partition("=")[0]
    return any(key == name or key.startswith(f"{name}.") for name in (*INCIDENTAL, *NO_RESULT, "hydra"))


def _configs(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [yaml.safe_load((Path(one) / "config.yaml").read_text(encoding="utf-8")) for one in frame["folder"].unique()]
