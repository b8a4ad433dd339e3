"""Checks on the composed configuration: all that can be wrong without a look at the data. Imports nothing heavy."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from omegaconf import MISSING, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedsaf.core.resolvers import register

register()  # here, since a process of a launcher imports this before it composes, and runs no entry

SHOWN = ("table", "figure")
"""What an experiment says about how its runs are shown; no part of a run."""

CONF = (Path(__file__).parents[1] / "conf").resolve()
"""The configuration: of an installed package a part of it, of a checkout the folder at its top."""

MAX_LISTED = 60  # choices that a message names


class ConfigError(ValueError):
    """The configuration cannot be run; the message says what came and what was expected."""


def plain(config: Any, resolve: bool = True) -> dict[str, Any]:
    """Return a composed or loaded configuration as plain containers."""
    return cast(dict[str, Any], OmegaConf.to_container(config, resolve=resolve))


def resolved(config: Any) -> dict[str, Any]:
    """Return the composed configuration of a run as plain containers, without what says how runs are shown.

    Raises:
        ConfigError: a key still has the value ``???``, or an interpolation does not hold.
    """
    for key in _missing(plain(config, resolve=False)):
        raise ConfigError(f"{key} is ???, a value that has to be given; write {key}=VALUE")
    try:
        return {key: value for key, value in plain(config).items() if key not in SHOWN}
    except OmegaConfBaseException as error:
        raise ConfigError(" ".join(str(error).split())) from error


def _missing(node: Any, key: str = "") -> Iterator[str]:
    if node == MISSING:
        yield key
    elif isinstance(node, Mapping):
        for name, value in node.items():
            yield from _missing(value, f"{key}.{name}" if key else str(name))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _missing(value, f"{key}.{index}")


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 < value <= 1


SWITCHES = ("progress", "force", "stop_on_failure")
COUNTS = ("rounds", "num_clients", "local_epochs", "batch_size", "feature_dim", "eval_batch_size", "eval_every")
EXPECTED: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(COUNTS, (lambda value: _is_int(value) and value >= 1, "a whole number >= 1")),
    **dict.fromkeys(SWITCHES, (lambda value: isinstance(value, bool), "true or false")),
    "seed": (lambda value: value is None or _is_int(value), "a whole number, or null"),
    "participation_ratio": (_is_share, "a number in (0, 1], 1 for everyone"),
    "results_root": (lambda value: isinstance(value, str) and value != "", "the name of a folder"),
    "diagnostics_every": (lambda value: _is_int(value) and value >= 0, "a whole number >= 0, 0 for never"),
    "checkpoint_overhead": (_is_share, "a share in (0, 1]"),
    "on_client_error": (lambda value: value in ("stop", "skip"), "stop or skip"),
}
"""Keys at the top: whether a value can be run, and in words which can."""


def check(config: Mapping[str, Any], chosen: Mapping[str, str]) -> None:
    """Refuse a `resolved` configuration that cannot be run; ``chosen`` are the groups the user touched, see below.

    Raises:
        ConfigError: naming the key, what came and what was expected.
    """
    for key, (can_be_run, expected) in EXPECTED.items():
        _expect(can_be_run(config[key]), key, config[key], expected)
    for key in {"alpha", "beta"} & set(config["partition"]):
        value = config["partition"][key]
        _expect(_is_number(value) and value > 0, f"partition.{key}", value, "a number > 0, for example 0.1")
    for key, value in config["alignment"].items():
        if key.endswith("_weight"):
            _expect(_is_number(value) and value >= 0, f"alignment.{key}", value, "a finite number >= 0")
    lr = config["optimizer"]["lr"]
    _expect(_is_number(lr) and lr > 0, "optimizer.lr", lr, "a number > 0")
    check_choices(config["method"], chosen)


def _expect(condition: bool, key: str, value: Any, expected: str) -> None:
    if not condition:
        raise ConfigError(f"{key} is {value!r}; expected {expected}")


def check_choices(method: Mapping[str, Any], chosen: Mapping[str, str]) -> None:
    """Refuse choices that the method would not read, so that no run carries a label it does not deserve.

    A method's node has ``name`` and, unless empty, ``reads`` (groups free to choose) and ``fixes`` (groups it chooses
    itself, whose values may still be set). ``chosen`` has the choice of a group, or the word that set a value of it.
    """
    for group in ("alignment", "prototype"):
        word, reads = chosen.get(group), method.get("reads", ())
        if word is None or group in reads:
            continue
        if group not in method.get("fixes", ()):
            raise ConfigError(
                f"{group}={word} was chosen, but method={method['name']} does not read it (it reads "
                f"{', '.join(reads) or 'neither alignment nor prototype'}); leave it out, or take method=prototype, "
                "which combines any alignment with any constructor"
            )
        if "=" not in word:
            raise ConfigError(
                f"{group}={word} was chosen, but method={method['name']} does not read it: its own {group} is what "
                f"makes this method; values can be set ({group}.KEY=...), another {group} needs method=prototype"
            )


def flatten(config: Mapping[str, Any], prefix: str = "", separator: str = ".") -> Iterator[tuple[str, Any]]:
    """Yield joined keys and leaf values.

    >>> dict(flatten({"a": {"b": 1}, "c": 2}))
    {'a.b': 1, 'c': 2}
    """
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}{separator}", separator)
        else:
            yield f"{prefix}{key}", value


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a clause that names the nearest known words, or all of them if there are few.

    >>> nearest("smal", ["smoke", "small", "full"])
    'did you mean small?'
    """
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"choose one of {', '.join(known)}" if len(known) <= MAX_LISTED else "see python src/train.py --help"
