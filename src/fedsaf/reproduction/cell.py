"""One run that a sweep starts: its words, its configuration, its folder, and how it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedsaf.core.config import check
from fedsaf.core.identity import config_hash, run_folder
from fedsaf.reproduction.composer import Composer
from fedsaf.reproduction.frame import cell_of
from fedsaf.reproduction.stand_ins import stand_in_words
from fedsaf.tracking.recorder import STATUS, SUMMARY, read_json


@dataclass(frozen=True, eq=False)
class Cell:
    """One run of a sweep; without a seed, what its runs share. It is composed when its configuration is asked for.

    Attributes:
        experiment: the sweep it comes from.
        scale: smoke, small or full.
        values: what the sweep sets for it, by swept key.
        common: words that it has in common with the other runs of its sweep on the same data.
        composer: of configurations.
        replacing: those of these words that choose data which stand in.
    """

    experiment: str
    scale: str
    values: Mapping[str, str]
    common: tuple[str, ...]
    composer: Composer
    replacing: tuple[str, ...] = ()

    @property
    def own(self) -> tuple[str, ...]:
        """What the sweep sets for it, as words of the command line."""
        return tuple(f"{key}={value}" for key, value in self.values.items())

    @property
    def frame(self) -> tuple[str, ...]:
        """All other words."""
        head, words = self.common[:2], self.common[2:]
        return (*head, *self.replacing, *words)

    @property
    def words(self) -> tuple[str, ...]:
        """Words of the command line: what stands in after what the sweep sets, what a user adds last."""
        return (*self.common[:2], *self.own, *self.replacing, *self.common[2:])

    @cached_property
    def config(self) -> dict[str, Any]:
        """Resolved configuration, checked."""
        config = self.composer.compose(self.words)
        check(config, {})
        return config

    @property
    def choices(self) -> dict[str, str]:
        """Choice of each group."""
        return self.composer.choices(self.words)

    @cached_property
    def key(self) -> str:
        """Equal for runs that differ in the seed alone, `fedsaf.reproduction.frame.Run.cell` of a recorded one."""
        return cell_of(self.config)

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

    def on_stand_in(self, always: bool = True) -> Cell | None:
        """Return the same run on data that stand in; None where nothing does.

        Args:
            always: whether the data stand in even if those they replace are there, which is not so when it is started.
        """
        words = stand_in_words(self.choices["dataset"], self.config, self.scale, always)
        return (
            Cell(self.experiment, self.scale, self.values, self.common, self.composer, tuple(words)) if words else None
        )

    @cached_property
    def started(self) -> Cell:
        """The run as the sweep starts it here: on its own data, or on others that stand in."""
        return self.on_stand_in(always=False) or self

    def chooses(self, group: str) -> str | None:
        """Return what its words choose in a group, as far as that is known without composing and no two disagree."""
        found = set(self.composer.overridden(self.words, group))
        return self.values.get(group) or (found.pop() if len(found) == 1 else None)
