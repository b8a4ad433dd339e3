"""The identity of a run: the part of its configuration that determines the result, and nothing else.

A run is found again by its identity, so nothing may enter it that a later version of the code changes without changing
a number: where a class lives, groups that nobody reads, switches of other methods, keys that did not exist yet.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PARTS = ("dataset", "partition", "validation", "augment", "model_group", "method", "optimizer", "fabric")
"""Nodes that the run builds its parts of. What they interpolate (an alignment, a constructor, a switch of
``protocol``) is resolved inside them, so the groups themselves are not read."""

NUMBERS = (
    "seed",
    "rounds",
    "num_clients",
    "local_epochs",
    "batch_size",
    "participation_ratio",
    "eval_batch_size",
    "eval_every",
    "diagnostics_every",
)
"""Top-level keys that the run reads by name."""

PROTOCOL = ("split", "train_fraction", "initialisation", "shuffle", "last_batch")
"""Keys of ``protocol`` that the run reads by name."""

MARKS = ("scale", "stand_in_for")
"""Keys that change no number, but say for what a run may stand: tables tell runs apart by them."""

INCIDENTAL = (
    "results_root",
    "force",
    "stop_on_failure",
    "logger",
    "progress",
    "checkpoint_overhead",
    "store",
    "on_client_error",
    "fabric.accelerator",
    "fabric.devices",
    "fabric.num_nodes",
    "fabric.threads",
    "dataset.memory_limit_gib",
    "method.reads",
    "method.fixes",
    "method.alignment.weights",
)
"""Keys that change how a run is carried out, or what the command line is checked against, but not what it computes; and
the weights of both levels before ``levels`` and further words decided which of them hold."""

NEUTRAL: dict[str, Any] = {}
"""``Class.key`` (or ``key`` on top level) -> the one value of it that is left out of the identity.

**To add a key without invalidating anybody's runs**, let null, false, [] or {} mean "as before": these are left out
everywhere, and nothing is to be done. Where another value means it, enter it here in the same commit, for example
``"SGD.momentum": 0.9`` for ``_target_: torch.optim.SGD``; a key below a plain node of that class is
``Class.node.key``. Never enter a key that is in use already: recorded runs have it in their hash.

**Why two different configurations stay different.** A key that is left out has the value it would have if nobody had
written it, and what remains is unchanged. So two configurations can only meet in one key, at two of null, false, [] and
{}. A reader takes them for the same, "nothing", or refuses all but one, as a key has one type. A key whose reader does
tell two of them apart is entered here with the one that means "as before"; then only that one is left out.
"""


def identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of the resolved configuration that determines the result, in the form that is hashed.

    - Only what is read: `PARTS`, `NUMBERS`, `PROTOCOL`, and the `MARKS`.
    - A class or function counts by its name alone; parts of one name from two modules have another fingerprint.
    - Keys at null, false, [] or {} are left out, and those at their value in `NEUTRAL`.
    - Whole numbers are integers: 1.0 is 1. The order of keys does not matter, that of lists does.

    >>> run = {"seed": 0, "optimizer": {"_target_": "torch.optim.SGD", "lr": 1.0, "nesterov": False}, "force": True}
    >>> identity(run)
    {'seed': 0, 'optimizer': {'_target_': 'SGD', 'lr': 1}}
    """
    kept = without_incidental(config)
    read = {key: kept[key] for key in (*NUMBERS, *MARKS, *PARTS) if key in kept}
    protocol = kept.get("protocol") or {}
    read["protocol"] = {key: protocol[key] for key in PROTOCOL if key in protocol}
    return _normal(read, "")


def without_incidental(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy without the keys that only say how a run is carried out."""
    kept = json.loads(json.dumps(config))
    for dotted in INCIDENTAL:
        *path, last = dotted.split(".")
        node = kept
        for name in path:
            node = node.get(name, {})
        node.pop(last, None)
    return kept


def config_hash(config: Mapping[str, Any]) -> str:
    """Return 12 hexadecimal digits that are equal for equal identities."""
    return hashlib.sha256(_text(identity(config)).encode()).hexdigest()[:12]


def cell_hash(config: Mapping[str, Any]) -> str:
    """Return the hash of a cell: equal for runs that differ in the seed alone."""
    return config_hash({key: value for key, value in config.items() if key != "seed"})


def run_name(config: Mapping[str, Any], choices: Mapping[str, str]) -> str:
    """Return the name of the run's folder: its choices for people, its hash for exactness."""
    parts = [choices["dataset"], choices["partition"], choices["model_group"], config["method"]["name"]]
    parts += [choices[group] for group in config["method"].get("reads", ()) if group in choices]
    return "_".join([*parts, f"seed{config['seed']}", config_hash(config)])


def run_folder(config: Mapping[str, Any], choices: Mapping[str, str]) -> Path:
    """Return the folder that holds this run, or will hold it.

    A run whose choices were called otherwise when it was made (a preset written out, a renamed file of ``conf/``) is
    found by its hash. A forced run replaces none but that of its own name.
    """
    root = Path(config["results_root"])
    named = root / run_name(config, choices)
    if named.exists() or config.get("force"):
        return named
    return next(iter(sorted(root.glob(f"[!.]*_{config_hash(config)}"))), named)


def lock_path(folder: Path) -> Path:
    """Return the file whose lock is held by the process that writes this run folder."""
    return folder.parent / f".{folder.name}.lock"


def _normal(value: Any, place: str) -> Any:
    """Return a value as it is hashed; ``place`` is the name of its class, or its place below the nearest one."""
    if isinstance(value, Mapping):
        name = str(value.get("_target_") or "").rpartition(".")[2]
        here = name or place
        entries = {key: _normal(item, f"{here}.{key}".lstrip(".")) for key, item in value.items()}
        if name:
            entries["_target_"] = name
        return {key: item for key, item in entries.items() if not _is_left_out(key, item, f"{here}.{key}".lstrip("."))}
    if isinstance(value, list):
        return [_normal(item, place) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_left_out(key: str, value: Any, place: str) -> bool:
    if place in NEUTRAL:
        return _text(value) == _text(_normal(NEUTRAL[place], place))
    return key == "_convert_" or value is None or value is False or value in ([], {})


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
