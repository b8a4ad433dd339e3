"""The papers' experiments: ``conf/experiment/<name>.yaml`` says what is swept and what of it a table or figure shows.

Beside ``hydra.sweeper.params`` such a file has a node ``table`` or ``figure``, or both:

- ``id``, ``title``; ``target``, what ``make`` calls it, if that is not the file's name. Files with the same id make one
  table, in the order of ``part``; the first one has the title and what else is said once.
- ``rows``, ``columns`` (a table), ``panels``, ``series``, ``points`` (a figure): swept keys, or ``part`` for the
  ``parts`` of a measure: a list, or one for each value of a swept key.
- ``shows``: the measure; ``rule``: by which prediction rule, ``reported`` for each method's own.
- ``labels``: what holds for all its numbers; ``names``: what a swept value is called, a text or labels by axis;
  ``axes``: of what a swept key is the label, if that is not said by `AXIS`.
- ``printed``: paper and table in ``paper_values.csv``. ``differs``: keys that rows do not share on purpose.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fedsaf.core.config import ConfigError, nearest
from fedsaf.reproduction.cell import Cell
from fedsaf.reproduction.composer import CONF, Composer, check_words
from fedsaf.reproduction.paper import AXES

SCALES = ("smoke", "small", "full")
KINDS = ("table", "figure")
AXIS = {"method": "method", "dataset": "dataset", "partition.alpha": "partition", "model_group": "model_group"}
"""Of what a swept key is the label; any other one is of the ``setting``."""
PART, SEED = "part", "seed"
Labels = dict[str, str]


@dataclass(frozen=True)
class Experiment:
    """A sweep.

    Attributes:
        name: of its file.
        sweep: swept keys and their values, in the order of the file.
        nodes: ``table`` and ``figure``, as far as it has them.
    """

    name: str
    sweep: Mapping[str, Sequence[str]]
    nodes: Mapping[str, Mapping[str, Any]]

    def cells(
        self, scale: str, words: Sequence[str], seeds: Sequence[str] | None, composer: Composer
    ) -> Iterator[Cell]:
        """Yield every run of the sweep; a word that sets a swept key takes the place of its values.

        Args:
            scale: smoke, small or full.
            words: further ones of every run.
            seeds: instead of the experiment's; [] for cells without a seed.
            composer: of configurations.
        """
        own = {key: value for key, _, value in (word.partition("=") for word in words)}
        sweep = {key: [own[key]] if key in own else list(values) for key, values in self.sweep.items()}
        if seeds is not None:
            sweep.pop(SEED, None)
            sweep |= {SEED: list(seeds)} if seeds else {}
        elif scale == "smoke" and SEED in sweep:
            sweep[SEED] = sweep[SEED][:1]
        check_words(words, sweep, composer)
        common = [f"experiment={self.name}", f"scale={scale}", *(f"{k}={v}" for k, v in own.items() if k not in sweep)]
        for values in itertools.product(*sweep.values()):
            yield Cell(self.name, scale, dict(zip(sweep, values, strict=True)), tuple(common), composer)


@dataclass(frozen=True)
class Block:
    """What one experiment brings to a table or figure.

    Attributes:
        experiment: which.
        node: its ``table`` or ``figure``.
    """

    experiment: Experiment
    node: Mapping[str, Any]

    def labels(self, key: str, value: str) -> Labels:
        """Return what a value of a swept key is called, by axis."""
        own, known = self.node.get("names", {}).get(key, {}), _names().get(key, {})
        name = {str(k): v for k, v in own.items()}.get(value, known.get(value, value))
        return dict(name) if isinstance(name, Mapping) else {self.axis(key): str(name)}

    def axis(self, key: str) -> str:
        """Return of what a swept key is the label."""
        return self.node.get("axes", {}).get(key) or AXIS.get(key, "setting")

    def parts(self, values: Mapping[str, str]) -> Sequence[str]:
        """Return the parts of a cell that are shown; [""] if it is one number."""
        parts = self.node.get("parts", [""])
        if not isinstance(parts, Mapping):
            return parts
        return next(parts[value] for value in values.values() if value in parts)


@dataclass(frozen=True)
class Place:
    """Where one number stands.

    Attributes:
        cell: whose runs it is of, without a seed.
        part: which number of these runs; empty if there is one.
        labels: one for each axis of printed numbers, and for what else is swept.
        roles: by role, such as rows and columns, the labels that say where it stands.
    """

    cell: Cell
    part: str
    labels: Labels
    roles: Mapping[str, Labels]

    def name(self, role: str) -> str:
        """Return the labels of a role as one name; empty where there are none."""
        return ", ".join(label for label in self.roles[role].values() if label)

    def __str__(self) -> str:
        return ", ".join(label for label in self.labels.values() if label)


@dataclass(frozen=True)
class Display:
    """A table or figure.

    Attributes:
        kind: ``table`` or ``figure``.
        id: what the report calls it, such as saf-t3.
        target: what ``make`` calls it, such as table-3.
        node: what is said once: title, measure, rule.
        blocks: one for each of its experiments, in order.
    """

    kind: str
    id: str
    target: str
    node: Mapping[str, Any]
    blocks: Sequence[Block]

    @property
    def title(self) -> str:
        """Heading."""
        return self.node["title"]

    def free(self, role: str, composer: Composer) -> set[str]:
        """Return the keys in which the runs of a role differ on purpose: swept ones, and what their choices set."""
        keys = set(self.node.get("differs", ()))
        for block in self.blocks:
            for key in set(block.node.get(role, ())) - {PART}:
                keys |= {key}.union(*(composer.set_by(f"{key}={value}") for value in block.experiment.sweep[key]))
        return keys

    def places(
        self, roles: Sequence[str], scale: str, words: Sequence[str] = (), composer: Composer | None = None
    ) -> Iterator[Place]:
        """Yield every place; nothing is composed before somebody asks a cell for its configuration.

        Args:
            roles: keys of the node that say where a number stands, such as rows and columns.
            scale: smoke, small or full.
            words: further ones of every run.
            composer: of configurations; None for the one of the checkout.
        """
        for block in self.blocks:
            for cell in block.experiment.cells(scale, words, [], composer or default_composer()):
                for part in block.parts(cell.values):
                    named = {key: block.labels(key, value) for key, value in cell.values.items()}
                    named |= {PART: {"setting": part}} if part else {}
                    labels = dict.fromkeys(AXES, "") | block.node.get("labels", {})
                    for one in named.values():
                        labels |= one
                    shown = {
                        role: {axis: label for key in block.node.get(role, []) for axis, label in named[key].items()}
                        for role in roles
                    }
                    yield Place(cell, part, labels, shown)


@cache
def default_composer() -> Composer:
    """Return the composer of the checkout's configurations, which remembers what it has composed."""
    return Composer(CONF)


@cache
def experiments(conf: Path = CONF) -> Mapping[str, Experiment]:
    """Return every experiment that sweeps, by name."""
    found = {}
    for path in sorted((conf / "experiment").glob("*.yaml")):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        params = ((content.get("hydra") or {}).get("sweeper") or {}).get("params")
        if params:
            sweep = {str(key): str(values).split(",") for key, values in params.items()}
            found[path.stem] = Experiment(path.stem, sweep, {kind: content[kind] for kind in KINDS if kind in content})
    return found


@cache
def displays(kind: str, conf: Path = CONF) -> Mapping[str, Display]:
    """Return all tables, or all figures, by id, in the order of their targets' files."""
    blocks: dict[str, list[Block]] = {}
    for experiment in experiments(conf).values():
        if node := experiment.nodes.get(kind):
            blocks.setdefault(node["id"], []).append(Block(experiment, node))
    found = {}
    for name, members in blocks.items():
        members.sort(key=lambda block: block.node.get(PART, 1))
        first = members[0]
        target = first.node.get("target", first.experiment.name.replace("_", "-"))
        found[name] = Display(kind, name, target, first.node, members)
    return found


def called(names: Iterable[str], known: Iterable[Any], kind: str) -> list[Any]:
    """Return what has these ids or targets, in the order of what is known.

    Raises:
        ValueError: nothing is called so; the message names the nearest.
    """
    known, names = list(known), list(names)
    every = {text for one in known for text in (one.id, one.target)}
    for name in names:
        if name not in every:
            raise ValueError(f"no {kind} is called {name!r}; {nearest(name, every)}")
    return [one for one in known if one.id in names or one.target in names]


def experiments_of(target: str, conf: Path = CONF) -> list[Experiment]:
    """Return the experiments of a target such as ``table-3``, or the one experiment of this name.

    Raises:
        ConfigError: there is none, with the nearest targets.
    """
    shown = [one for kind in KINDS for one in displays(kind, conf).values() if one.target == target]
    found = {block.experiment.name: block.experiment for one in shown for block in one.blocks}
    alone = experiments(conf).get(target.replace("-", "_"))
    if not found and alone is None:
        known = {one.target for kind in KINDS for one in displays(kind, conf).values()}
        choices = sorted(known | {name.replace("_", "-") for name in experiments(conf)})
        raise ConfigError(f"{target} is no target; {nearest(target, choices)}")
    return list(found.values()) or [alone]


def cells(
    target: str,
    scale: str,
    words: Sequence[str] = (),
    seeds: Sequence[str] | None = None,
    composer: Composer | None = None,
) -> list[Cell]:
    """Return the runs of a target as its sweeps start them, those that several of its experiments share once.

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
    composer = composer or default_composer()
    found: dict[Path, Cell] = {}
    for experiment in experiments_of(target, composer.conf):
        for cell in experiment.cells(scale, words, seeds, composer):
            found.setdefault(cell.started.folder, cell.started)
    root = next(iter(found)).parent
    if root.exists() and not root.is_dir():
        raise ConfigError(f"results_root={root} is a file; expected a folder")
    return list(found.values())


def check_scale(scale: str) -> None:
    """Raise a ConfigError unless the scale is known."""
    if scale not in SCALES:
        raise ConfigError(f"TIER={scale} is unknown; {nearest(scale, SCALES)}")


@cache
def _names() -> Mapping[str, Mapping[str, str]]:
    content = yaml.safe_load(Path(__file__).with_name("names.yaml").read_text(encoding="utf-8"))
    return {key: {str(value): name for value, name in names.items()} for key, names in content.items()}
