"""Composes the configurations of sweeps as Hydra does, and answers words that make no sense there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from fedsaf.core.config import CONF, SHOWN, ConfigError, flatten, nearest

CHOSEN_OTHERWISE = {
    "scale": "the scale is chosen by TIER=, or --scale",
    "experiment": "a target has experiments of its own",
    "validation": "runs that are scored on a validation part stand in no table",
}
"""Words that a target sets itself, with what to say instead."""


class Composer:
    """Composes configurations; group choices by Hydra, once per combination, and values on top of them.

    Composing a group takes Hydra a large part of a second, and a table has hundreds of runs.

    Args:
        conf: the configuration folder.
    """

    def __init__(self, conf: Path = CONF) -> None:
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

    def set_by(self, word: str) -> set[str]:
        """Return the groups that a choice overrides and the keys that its file sets, without composing anything."""
        group, _, choice = word.partition("=")
        path = self.conf / group / f"{choice}.yaml"
        return set(_content(path)) if group in self.groups and path.exists() else set()

    def overridden(self, words: Iterable[str], group: str) -> list[str]:
        """Return what the files of these choices choose in a group."""
        places = (self.conf / word.partition("=")[0] / f"{word.partition('=')[2]}.yaml" for word in words)
        found = (_content(path).get(group) for path in places if path.exists())
        return [choice for choice in found if choice is not None]

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


@cache
def _content(path: Path) -> Mapping[str, Any]:
    """Return what a file of a group chooses in other groups, and the values it sets under their dotted keys."""
    text = path.read_text(encoding="utf-8")
    content = {key: value for key, value in (yaml.safe_load(text) or {}).items() if key not in ("hydra", *SHOWN)}
    defaults = [entry for entry in content.pop("defaults", []) if isinstance(entry, Mapping)]
    chosen = {key.removeprefix("override /"): choice for entry in defaults for key, choice in entry.items()}
    header = text.partition("\n")[0].partition("@package ")[2]
    package = {"": path.parent.name, "_global_": ""}.get(header, header)
    return chosen | dict(flatten(content, f"{package}." if package else ""))


def check_words(words: Sequence[str], sweep: Mapping[str, Collection[str]], composer: Composer) -> None:
    """Raise a ConfigError unless every word sets one value, and none that a swept choice sets for itself."""
    for word in words:
        key, _, value = word.partition("=")
        if key in CHOSEN_OTHERWISE:
            raise ConfigError(f"{word}: {CHOSEN_OTHERWISE[key]}")
        if not key or "=" not in word:
            raise ConfigError(f"{word} is no override; write key=value, such as rounds=3")
        if "," in value and value[0] not in "[{\"'":
            raise ConfigError(f"{word} is a sweep; a target brings its own, and a further word sets one value for all")
        for swept, values in sweep.items():
            if len(values) > 1 and swept != key and all(key in composer.set_by(f"{swept}={one}") for one in values):
                raise ConfigError(f"{word}: {key} is what {swept}={','.join(values)} is about; choose one of these")


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
