"""Reads the command line before Hydra does, to answer mistakes at once and with the nearest right word.

Hydra would say the same later, in job 7 of a sweep, or after the imports; and it accepts a few things silently that
cannot be meant. Every choice and every value of a sweep is composed and checked once, against the first of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, QuotedString
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedsaf.core.config import ConfigError, check, check_choices, flatten, nearest

MAX_COMPOSITIONS = 48
"""How many values of a sweep are tried beforehand; the others are checked when their job starts."""


def check_command_line(arguments: Sequence[str], folder: Path, config_name: str) -> None:
    """Check the overrides among the arguments.

    Args:
        arguments: the command line without the program.
        folder: the configuration folder.
        config_name: the primary configuration.

    Raises:
        ConfigError: unknown group, choice or key, with the nearest ones; a value that `check` refuses.
    """
    words = [word for word in arguments if not word.startswith("-") and "=" in word]
    try:
        overrides = OverridesParser.create().parse_overrides(words)
    except HydraException as error:
        raise ConfigError(f"cannot read {' '.join(words)}: {error}") from error
    own = [o for o in overrides if not o.key_or_group.startswith("hydra")]
    groups = {path.name: sorted(f.stem for f in path.glob("*.yaml")) for path in folder.iterdir() if path.is_dir()}
    for override in own:
        if override.key_or_group in groups:
            _check_choice(override, groups[override.key_or_group], folder)
        if override.key_or_group == "experiment" and not {"-m", "--multirun"} & set(arguments):
            for value in _values(override):
                if _brings_a_sweep(folder, value):
                    raise ConfigError(f"experiment={value} is a sweep, which Hydra ignores without -m; add -m")
    with initialize_config_dir(str(folder.resolve()), version_base="1.3"):
        _check_keys(own, groups, config_name)
        for variant in _variants(own):
            _check_variant(variant, config_name, groups)


def chosen_groups(overrides: Iterable[str], groups: Iterable[str]) -> dict[str, str]:
    """Return which groups these override words touch, with the choice or the value that was set.

    >>> chosen_groups(["alignment=gcsa", "seed=1", "prototype.absent=drop"], ["alignment", "prototype"])
    {'alignment': 'gcsa', 'prototype': 'prototype.absent=drop'}
    """
    touched = {}
    for word in overrides:
        key, _, value = word.lstrip("+~").partition("=")
        group, _, rest = key.partition(".")
        if group in groups:
            touched[group] = word if rest else value
    return touched


def cells(words: Sequence[str]) -> list[list[str]]:
    """Return the override words of every cell of a sweep, the last word changing fastest, as Hydra runs them.

    >>> cells(["seed=0,1", "rounds=3"])
    [['seed=0', 'rounds=3'], ['seed=1', 'rounds=3']]

    Raises:
        ConfigError: a sweep whose values cannot be listed, such as an interval.
    """
    values = []
    for override in OverridesParser.create().parse_overrides(list(words)):
        word = str(override.input_line)
        if override.is_sweep_override() and not (override.is_choice_sweep() or override.is_range_sweep()):
            raise ConfigError(f"{word}: the values of this sweep cannot be listed; write them out")
        elements = override.sweep_iterator(transformer=_element) if override.is_sweep_override() else None
        key = word.partition("=")[0]
        values.append([word] if elements is None else [f"{key}={element}" for element in elements])
    return [list(cell) for cell in product(*values)]


def _values(override: Override) -> list[Any]:
    """Return the values an override may take: one, or those of its sweep."""
    if override.is_sweep_override():
        if not override.is_discrete_sweep() and not override.is_range_sweep():
            return []
        return [_plain(value) for value in override.sweep_iterator()]
    return [_plain(override.value())]


def _plain(value: Any) -> Any:
    return value.text if isinstance(value, QuotedString) else value


def _check_choice(override: Override, choices: Sequence[str], folder: Path) -> None:
    group = override.key_or_group
    values = _values(override)
    for value in values:
        if value is None and group in ("experiment", "debug"):
            raise ConfigError(f"{group}=null is no choice; leave {group} out")
        if not isinstance(value, str):
            instead = {"alignment": "alignment=none", "logger": "logger=none"}.get(group, f"{group}={choices[0]}")
            if isinstance(value, (int, float)) and f"{group}.alpha" == "partition.alpha":
                instead = f"partition=dirichlet_{value} if there is such a preset, or partition=dirichlet "
                instead += f"partition.alpha={value}"
            raise ConfigError(f"{group}={value} is no choice; write {instead} ({nearest('', choices)})")
        if value not in choices:
            raise ConfigError(f"{group}={value} is unknown; {nearest(value, choices)}")
    if group == "experiment" and len(values) > 1:
        sweeping = [value for value in values if _brings_a_sweep(folder, value)]
        if sweeping:
            raise ConfigError(
                f"experiment={','.join(values)}: {sweeping[0]} brings its own sweep, which Hydra would ignore here; "
                "run the experiments one after another"
            )


def _brings_a_sweep(folder: Path, experiment: str) -> bool:
    return "sweeper:" in (folder / "experiment" / f"{experiment}.yaml").read_text()


def _check_keys(overrides: Sequence[Override], groups: dict[str, list[str]], config_name: str) -> None:
    """Refuse keys that no configuration has. Keys of a group are looked up in the first choice of each sweep."""
    choices = [_first(o) for o in overrides if o.key_or_group in groups]
    config = _compose(config_name, choices, resolve=False)
    known = {key for key, _ in flatten(config)}
    nodes = {key.rsplit(".", depth)[0] for key in known for depth in range(1, key.count(".") + 1)}
    for override in overrides:
        key = override.key_or_group
        if key in groups or key in known or key in nodes or override.is_add() or override.is_force_add():
            continue
        raise ConfigError(f"{key} is no key of this configuration; {nearest(key, known | set(groups))}")


def _first(override: Override) -> str:
    """Return the override with the first of its values."""
    word = str(override.input_line)
    if not override.is_sweep_override() or override.is_interval_sweep():
        return word
    first = next(iter(override.sweep_iterator(transformer=_element)))
    return f"{word.partition('=')[0]}={first}"


def _element(value: Any) -> str:
    return Override._get_value_element_as_str(value)


def _variants(overrides: Sequence[Override]) -> list[list[str]]:
    """Return one list of words with every sweep at its first value, and one more for each other value."""
    first = [_first(o) for o in overrides]
    variants = [first]
    for index, override in enumerate(overrides):
        if not override.is_sweep_override() or override.is_interval_sweep():
            continue
        key = str(override.input_line).partition("=")[0]
        for value in list(override.sweep_iterator(transformer=_element))[1:]:
            variants.append([*first[:index], f"{key}={value}", *first[index + 1 :]])
    return variants[:MAX_COMPOSITIONS]


def _compose(config_name: str, words: Sequence[str], resolve: bool = True) -> dict[str, Any]:
    try:
        config = compose(config_name, overrides=list(words))
        return OmegaConf.to_container(config, resolve=resolve)  # type: ignore[return-value]
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(str(error)) from error


def _check_variant(words: Sequence[str], config_name: str, groups: Iterable[str]) -> None:
    chosen = chosen_groups(words, groups)
    # First, since a method that is given another part than its own may have nothing to interpolate from.
    check_choices(_compose(config_name, words, resolve=False)["method"], chosen)
    config = _compose(config_name, words)
    check(config, chosen)
    root = Path(config["results_root"])
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"results_root={root} cannot be a folder: {error.strerror}") from error
