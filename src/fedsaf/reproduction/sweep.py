"""From a target of the papers to its runs: which words start each, which folder it has, how it stands.

A target is a table or figure; its experiments are the files ``conf/experiment/<target>.yaml`` and
``conf/experiment/<target>_*.yaml``, each a sweep. The same run may belong to several targets: its folder follows from
its configuration alone, so it runs once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from fedsaf.core.config import SHOWN, ConfigError, check, flatten, nearest
from fedsaf.core.files import read_json
from fedsaf.core.identity import config_hash, run_folder
from fedsaf.reproduction.experiments import displays
from fedsaf.reproduction.selection import SCALES, table_definitions
from fedsaf.reproduction.stand_ins import stand_in_words
from fedsaf.tracking.recorder import STATUS, SUMMARY

CHOSEN_OTHERWISE = {
    "scale": "the scale is chosen by TIER=, or --scale",
    "experiment": "a target has experiments of its own",
    "validation": "runs that are scored on a validation part stand in no table",
}
"""Words that a target sets itself, with what to say instead."""


@dataclass(frozen=True)
class PlannedRun:
    """One run of a target.

    Attributes:
        experiment: the sweep it comes from.
        own: what the sweep sets for it, as words of the command line.
        frame: what it has in common with the other runs of its sweep on the same data.
        config: resolved configuration.
        choices: choice of each group.
    """

    experiment: str
    own: tuple[str, ...]
    frame: tuple[str, ...]
    config: Mapping[str, Any]
    choices: Mapping[str, str]

    @cached_property
    def folder(self) -> Path:
        """Its run folder, the same for everyone who wants this run."""
        return run_folder(self.config, self.choices)

    @property
    def is_finished(self) -> bool:
        """Whether its folder holds the result of just this configuration."""
        try:
            status, summary = read_json(self.folder / STATUS) or {}, read_json(self.folder / SUMMARY) or {}
        except ValueError:
            return False
        return status.get("state") == "finished" and summary.get("config_hash") == config_hash(self.config)


def experiments_of(target: str, conf: Path) -> list[str]:
    """Return the experiments of a target such as ``table-3``, or the one experiment of this name.

    Raises:
        ConfigError: there is none, with the nearest targets.
    """
    name = target.replace("-", "_")
    known = sorted(path.stem for path in (conf / "experiment").glob("*.yaml"))
    targets = {one.target for one in (*table_definitions().values(), *displays("figure").values())}
    found = [e for e in known if e == name or (target in targets and e.startswith(f"{name}_"))]
    if not found:
        choices = sorted(targets | {e.replace("_", "-") for e in known})
        raise ConfigError(f"{target} is no target; {nearest(target, choices)}")
    return found


def sweep_of(experiment: str, conf: Path) -> dict[str, list[str]]:
    """Return the keys that an experiment sweeps over, with their values."""
    content = OmegaConf.load(conf / "experiment" / f"{experiment}.yaml")
    params = OmegaConf.select(content, "hydra.sweeper.params") or {}
    return {str(key): str(value).split(",") for key, value in params.items()}


def seeds_of(text: str) -> list[str] | None:
    """Return the seeds that a text such as ``0,1,2`` names; None for an empty one.

    Raises:
        ConfigError: an element is no whole number >= 0, or stands there twice.
    """
    if not text:
        return None
    seeds = [word.strip() for word in text.split(",")]
    if not all(seed.isascii() and seed.isdigit() for seed in seeds) or len(set(map(int, seeds))) < len(seeds):
        raise ConfigError(f"SEEDS={text}; expected different whole numbers >= 0, such as 0,1,2")
    return [str(int(seed)) for seed in seeds]


def check_scale(scale: str) -> None:
    """Raise a ConfigError unless the scale is known."""
    if scale not in SCALES:
        raise ConfigError(f"TIER={scale} is unknown; {nearest(scale, SCALES)}")


class Composer:
    """Composes configurations; group choices by Hydra, once per combination, and values on top of them.

    Composing a group takes Hydra a large part of a second, and a table has hundreds of runs.

    Args:
        conf: the configuration folder.
    """

    def __init__(self, conf: Path) -> None:
        self.conf = conf
        self.groups = {path.name for path in conf.iterdir() if path.is_dir()}
        self._composed: dict[tuple[str, ...], tuple[DictConfig, dict[str, str]]] = {}

    def choices(self, words: Iterable[str]) -> dict[str, str]:
        """Return the choice of each group."""
        return self._groups_of(words)[1]

    def compose(self, words: Iterable[str]) -> dict[str, Any]:
        """Return the resolved configuration."""
        words = list(words)
        config = self._groups_of(words)[0].copy()
        for word in words:
            key, _, value = word.partition("=")
            if key not in self.groups:
                try:
                    OmegaConf.update(config, key, yaml.safe_load(value), merge=False)
                except (ConfigAttributeError, ConfigKeyError) as error:
                    known = {key for key, _ in flatten(OmegaConf.to_container(config))} | self.groups
                    raise ConfigError(f"{key} is no key of this configuration; {nearest(key, known)}") from error
                except (OmegaConfBaseException, yaml.YAMLError) as error:
                    raise ConfigError(f"{word} does not fit this configuration: {error}") from error
        try:
            return OmegaConf.to_container(config, resolve=True)  # type: ignore[return-value]
        except OmegaConfBaseException as error:
            raise ConfigError(f"{' '.join(words)}: {error}".partition("\n")[0]) from error

    def _groups_of(self, words: Iterable[str]) -> tuple[DictConfig, dict[str, str]]:
        chosen = tuple(word for word in words if word.partition("=")[0] in self.groups)
        if chosen not in self._composed:
            self._check_choices(chosen)
            try:
                with initialize_config_dir(str(self.conf.resolve()), version_base="1.3"):
                    config = compose("train", overrides=list(chosen), return_hydra_config=True)
            except HydraException as error:
                raise ConfigError(str(error)) from error
            found = {k: v for k, v in config.hydra.runtime.choices.items() if isinstance(v, str) and "/" not in k}
            OmegaConf.set_struct(config, False)
            for node in ("hydra", *SHOWN):
                config.pop(node, None)
            OmegaConf.set_struct(config, True)
            self._composed[chosen] = (config, found)
        return self._composed[chosen]

    def _check_choices(self, chosen: Iterable[str]) -> None:
        """Raise a ConfigError, with the nearest, for a choice that its group has not."""
        for word in chosen:
            group, _, choice = word.partition("=")
            known = [path.stem for path in (self.conf / group).glob("*.yaml")]
            if choice not in (*known, "null"):
                raise ConfigError(f"{word} is unknown; {nearest(choice, known)}")


def runs_of(
    target: str, scale: str, words: Sequence[str], seeds: Sequence[str] | None, composer: Composer
) -> list[PlannedRun]:
    """Return the runs of a target, those that several of its experiments share once.

    Args:
        target: such as ``table-3``.
        scale: smoke, small or full.
        words: what the user adds for every run.
        seeds: instead of the experiments' seeds; None for these, at scale smoke for the first of them.
        composer: of configurations.

    Raises:
        ConfigError: unknown target or scale, or a word that is no override or a sweep of its own.
    """
    check_scale(scale)
    _check_words(words)
    found: dict[Path, PlannedRun] = {}
    for experiment in experiments_of(target, composer.conf):
        sweep = sweep_of(experiment, composer.conf)
        if seeds:
            sweep["seed"] = list(seeds)
        elif scale == "smoke" and "seed" in sweep:
            sweep["seed"] = sweep["seed"][:1]
        for values in itertools.product(*sweep.values()):
            own = [f"{key}={value}" for key, value in zip(sweep, values, strict=True)]
            run = _planned(experiment, scale, own, words, composer)
            found.setdefault(run.folder, run)
    root = next(iter(found)).parent
    if root.exists() and not root.is_dir():
        raise ConfigError(f"results_root={root} is a file; expected a folder")
    return list(found.values())


def _check_words(words: Sequence[str]) -> None:
    """Raise a ConfigError unless every word sets one value."""
    for word in words:
        key, _, value = word.partition("=")
        if key in CHOSEN_OTHERWISE:
            raise ConfigError(f"{word}: {CHOSEN_OTHERWISE[key]}")
        if not key or "=" not in word:
            raise ConfigError(f"{word} is no override; write key=value, such as rounds=3")
        if "," in value and value[0] not in "[{\"'":
            raise ConfigError(f"{word} is a sweep; a target brings its own, and a further word sets one value for all")


def _planned(experiment: str, scale: str, own: Sequence[str], words: Sequence[str], composer: Composer) -> PlannedRun:
    frame = [f"experiment={experiment}", f"scale={scale}"]
    asked = [*frame, *own, *words]
    config, choices = composer.compose(asked), composer.choices(asked)
    replacing = stand_in_words(choices["dataset"], config, scale)
    if replacing:
        replaced = [*frame, *own, *replacing, *words]
        config, choices = composer.compose(replaced), composer.choices(replaced)
    check(config, {})
    return PlannedRun(experiment, tuple(own), tuple([*frame, *replacing, *words]), config, choices)
