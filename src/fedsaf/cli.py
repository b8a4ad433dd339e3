"""Reads the command line before Hydra does, to answer mistakes at once and with the nearest right word.

Hydra would say the same later, in job 7 of a sweep, or after the imports; and it accepts a few things silently that
cannot be meant. Every choice and every value of a sweep is composed and checked once, against the first of the others.
Groups and choices are those on Hydra's search path, with ``--config-dir`` and ``hydra.searchpath``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path, get_args_parser
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, QuotedString
from hydra.errors import HydraException
from omegaconf import DictConfig

from fedsaf.core.config import ConfigError, check, check_choices, flatten, nearest, plain, resolved

MAX_COMPOSITIONS = 48
"""How many values of a sweep are tried beforehand; the others are checked when their job starts."""
SEARCHPATH = "hydra.searchpath"


def words_first(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with the overrides before the flags: Hydra refuses overrides on both sides of a flag.

    >>> words_first(["rounds=3", "-m", "seed=0,1", "--config-dir", "mine"])
    ['rounds=3', 'seed=0,1', '-m', '--config-dir', 'mine']
    """
    words = get_args_parser().parse_intermixed_args(list(arguments)).overrides
    flags = list(arguments)
    for word in words:
        flags.remove(word)
    return [*words, *flags]


def check_command_line(arguments: Sequence[str], folder: Path, config_name: str) -> None:
    """Check the overrides among the arguments. What only asks Hydra something, such as ``--info``, is left to it.

    ``folder`` and ``config_name`` are the configuration and its primary file, unless the arguments name others.

    Raises:
        ConfigError: unknown group, choice or key, with the nearest ones; a value that `check` refuses.
    """
    options = get_args_parser().parse_intermixed_args(list(arguments))
    asks = options.help or options.hydra_help or options.cfg or options.info or options.shell_completion
    relative = options.config_path is not None and not options.config_path.startswith(("/", "pkg://"))
    if asks or relative or options.experimental_rerun:  # a relative path is one of Hydra's, beside the entry
        return
    with searching(folder, options.config_dir, options.config_path):
        loader = GlobalHydra.instance().config_loader()  # which knows the choices behind a glob
        try:
            overrides = OverridesParser.create(loader).parse_overrides(options.overrides)
        except HydraException as error:
            raise ConfigError(f"cannot read {' '.join(options.overrides)}: {error}") from error
        try:
            checks = _Checks(options.config_name or config_name, overrides, options.multirun)
            checks.choices()
            checks.keys()
            for variant in _variants(checks.own):
                checks.variant(variant)
        except HydraException as error:
            raise ConfigError(str(error)) from error


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
    """Return the override words of every cell of a sweep, in the order in which Hydra runs them.

    >>> cells(["seed=0,1", "rounds=3"])
    [['seed=0', 'rounds=3'], ['seed=1', 'rounds=3']]

    Raises:
        ConfigError: a sweep whose values cannot be listed, such as an interval.
    """
    values = []
    for override in OverridesParser.create().parse_overrides(list(words)):
        if override.is_sweep_override() and not (override.is_choice_sweep() or override.is_range_sweep()):
            raise ConfigError(f"{override.input_line}: the values of this sweep cannot be listed; write them out")
        values.append(_words(override))
    return [list(cell) for cell in product(*values)]


@contextmanager
def searching(folder: Path, config_dir: str | None = None, config_path: str | None = None) -> Iterator[None]:
    """Compose with the search path that Hydra makes of a configuration folder and its own options.

    Raises:
        ConfigError: ``config_dir`` is no folder.
    """
    path = create_config_search_path(config_path or str(folder.resolve()))
    if config_dir is not None:
        extra = Path(config_dir).absolute()
        if not extra.is_dir():
            raise ConfigError(f"--config-dir={config_dir} is no folder")
        path.prepend(provider="command-line", path=f"file://{extra}", anchor=SearchPathQuery(provider="schema"))
    with initialize_config_dir(str(folder.resolve()), version_base="1.3"):  # puts back what was there before
        GlobalHydra.instance().clear()
        Hydra.create_main_hydra2(task_name="train", config_search_path=path)
        yield


class _Checks:
    """What is checked of a command line, while Hydra's search path is set."""

    def __init__(self, config_name: str, overrides: Sequence[Override], multirun: bool) -> None:
        self.config_name, self.multirun = config_name, multirun
        self.own = [one for one in overrides if not one.key_or_group.startswith("hydra")]
        self.searched = [str(one.input_line) for one in overrides if one.key_or_group == SEARCHPATH]
        self.groups = [group for group in self._options("", ObjectType.GROUP) if group != "hydra"]

    def choices(self) -> None:
        """Refuse choices that their group has not, and an experiment's own sweep where Hydra would ignore it."""
        for override in self.own:
            group = override.key_or_group
            if group not in self.groups:
                continue
            known = self._options(group, ObjectType.CONFIG)
            values = [one.value() for one in _each(override) if not one.is_sweep_override()]
            values = [value.text if isinstance(value, QuotedString) else value for value in values]
            for value in values:
                self._check_choice(group, value, known)
            if group == "experiment":
                self._check_sweeps([str(value) for value in values])

    def _check_sweeps(self, experiments: Sequence[str]) -> None:
        composed = {name: self._compose([f"experiment={name}"], hydra=True) for name in experiments}
        sweeping = [name for name, config in composed.items() if config.hydra.sweeper.get("params")]
        if sweeping and not self.multirun:
            raise ConfigError(f"experiment={sweeping[0]} is a sweep, which Hydra ignores without -m; add -m")
        if sweeping and len(experiments) > 1:
            raise ConfigError(
                f"experiment={','.join(experiments)}: {sweeping[0]} brings its own sweep, which Hydra would ignore "
                "here; run the experiments one after another"
            )

    def keys(self) -> None:
        """Refuse keys that no configuration has. Keys of a group are looked up in the first choice of each sweep."""
        config = self._compose([_words(one)[0] for one in self.own if one.key_or_group in self.groups])
        known = {key for key, _ in flatten(plain(config, resolve=False))}
        nodes = {key.rsplit(".", depth)[0] for key in known for depth in range(1, key.count(".") + 1)}
        for override in self.own:
            key = override.key_or_group
            if key in nodes or key in known or key in self.groups or override.is_add() or override.is_force_add():
                continue
            raise ConfigError(f"{key} is no key of this configuration; {nearest(key, known | set(self.groups))}")

    def variant(self, words: Sequence[str]) -> None:
        """Refuse what `check` refuses, and a folder of results that cannot be one."""
        chosen = chosen_groups(words, self.groups)
        composed = self._compose(words)
        try:
            # First, since a method that is given another part than its own may have nothing to interpolate from.
            check_choices(plain(composed, resolve=False)["method"], chosen)
            config = resolved(composed)
            check(config, chosen)
            root = Path(config["results_root"])
        except KeyError as error:
            raise ConfigError(
                f"{self.config_name} has no key {error}; a primary configuration of one's own begins with "
                "`defaults: [train, _self_]`"
            ) from error
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"results_root={root} cannot be a folder: {error.strerror}") from error

    def _options(self, group: str, kind: ObjectType) -> list[str]:
        loader = GlobalHydra.instance().config_loader()
        return loader.get_group_options(group, kind, self.config_name, self.searched)

    def _compose(self, words: Sequence[str], hydra: bool = False) -> DictConfig:
        return compose(self.config_name, overrides=[*self.searched, *words], return_hydra_config=hydra)

    def _check_choice(self, group: str, value: Any, known: Sequence[str]) -> None:
        if value is None and group == "experiment":
            raise ConfigError(f"{group}=null is no choice; leave {group} out")
        if not isinstance(value, str):
            instead = {"alignment": "alignment=none", "logger": "logger=none"}.get(group, f"{group}={known[0]}")
            if isinstance(value, (int, float)) and group == "partition":
                instead = f"partition=dirichlet_{value} if there is such a preset, or partition=dirichlet "
                instead += f"partition.alpha={value}"
            raise ConfigError(f"{group}={value} is no choice; write {instead} ({nearest('', known)})")
        folder, _, name = value.rpartition("/")
        if name not in (self._options(f"{group}/{folder}", ObjectType.CONFIG) if folder else known):
            raise ConfigError(f"{group}={value} is unknown; {nearest(value, known)}")


def _each(override: Override) -> list[Override]:
    """Return an override for each value of a sweep; the override itself where its values cannot be listed."""
    if not override.is_sweep_override() or override.is_interval_sweep():
        return [override]
    key = str(override.input_line).partition("=")[0]
    values = override.sweep_iterator(transformer=Override._get_value_element_as_str)
    return OverridesParser.create().parse_overrides([f"{key}={value}" for value in values])


def _words(override: Override) -> list[str]:
    return [str(one.input_line) for one in _each(override)]


def _variants(overrides: Sequence[Override]) -> list[list[str]]:
    """Return one list of words with every sweep at its first value, and one more for each other value."""
    words = [_words(override) for override in overrides]
    first = [values[0] for values in words]
    variants = [first]
    for index, values in enumerate(words):
        variants += [[*first[:index], value, *first[index + 1 :]] for value in values[1:]]
    return variants[:MAX_COMPOSITIONS]
