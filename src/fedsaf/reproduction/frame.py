"""Recorded runs as one tidy frame: a row per run, round and prediction rule.

Everything that is shown about runs starts here. Runs are read, checked against themselves, and set aside with a reason
where they do not hold: nothing that is damaged, unfinished or made under other rules reaches a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from fedsaf.core.config import flatten
from fedsaf.core.identity import config_hash
from fedsaf.reproduction.soundness import (
    CONFIG,
    Rows,
    UnusableRun,
    read_commit,
    read_configuration,
    read_lines,
    read_object,
    sound_records,
)
from fedsaf.tracking.recorder import CLIENTS, METRICS, PARTITION, STATES, STATUS, SUMMARY
from fedsaf.tracking.summary import client_domains, predictors

GROUPS = (
    *("dataset", "partition", "model_group", "method", "alignment", "prototype"),
    *("protocol", "paper", "scenario", "scale"),
)
"""Choices that are columns of the frame."""
VALUES = (
    *("seed", "rounds", "num_clients", "local_epochs", "batch_size", "participation_ratio", "feature_dim"),
    *("partition.alpha", "optimizer.lr", "alignment.proto_weight", "alignment.inst_weight", "stand_in_for"),
)
"""Values of the configuration that are columns of the frame."""
DIAGNOSED = (
    *("effective_dimension", "coordinate", "shape", "rigid"),
    *("local_margin_mean", "global_margin_mean"),
)
"""What is measured about prototypes now and then; columns ``diagnostics.<name>``."""
TRAFFIC = ("upload_bytes", "download_bytes")
SECONDS = {"seconds": "total", "seconds.client": "client", "seconds.server": "server"}
ACCURACIES = ("pooled", "client_mean", "worst_10")
ROUND = ("round", "predictor", *ACCURACIES, *TRAFFIC, *SECONDS, *(f"diagnostics.{key}" for key in DIAGNOSED))
"""Columns that differ within a run."""
FACTS = ("run", "folder", "config_hash", "cell", "commit", "reports")
TEXTS = (*FACTS, *GROUPS, "stand_in_for")
REPORTED = "reported"
"""Stands for the prediction rule by which a method is scored in its own paper."""
NO_RESULT = ("seed", "diagnostics_every", "eval_batch_size", "dataset.path", "fabric.deterministic")
"""Values that tell runs of one cell apart, or change no number; the name of a cell has none of them."""
MISSHAPEN = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError)
"""What reading records of another shape than the recorder's may raise."""


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run whose files agree with each other.

    Attributes:
        folder: the run folder.
        config: the resolved configuration.
        choices: config group to choice.
        summary: ``summary.json``.
        rows: rows of ``metrics.jsonl``.
        timing: rows of ``timing.jsonl``.
        commit: of the code that made it; None if unknown.
    """

    folder: Path
    config: Mapping[str, Any]
    choices: Mapping[str, str]
    summary: Mapping[str, Any]
    rows: Rows = field(repr=False)
    timing: Rows = field(repr=False)
    commit: str | None = None

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return self.config["seed"]

    @cached_property
    def cell(self) -> str:
        """What it shares with runs that differ in the seed alone."""
        return cell_of(self.config)

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """A row per round and prediction rule: its part of the frame of `runs`, with the columns of `ROUND`."""
        return _rounds(self.rows, self.timing)

    def rule(self, rule: str) -> str:
        """Return the prediction rule that is meant: ``reported`` stands for that of the method's own paper."""
        return self.summary["predictor"] if rule == REPORTED else rule

    def scored(self, rule: str) -> pd.DataFrame:
        """Return the rounds with an accuracy under a rule; the one before training only if there is no other."""
        rounds = self.rounds[(self.rounds["predictor"] == self.rule(rule)) & self.rounds["pooled"].notna()]
        return rounds[rounds["round"] >= 1] if (rounds["round"] >= 1).any() else rounds

    @cached_property
    def clients(self) -> pd.DataFrame:
        """A row per round and client, with ``domain``; read when first asked for, since it is larger than all else."""
        frame = pd.DataFrame(read_lines(self.folder / CLIENTS))
        path = self.folder / PARTITION
        domains = client_domains(read_object(path)) if path.exists() else None
        return frame.assign(domain=None if domains is None else frame["client"].map(dict(enumerate(domains))))


@dataclass(frozen=True, eq=False)
class SetAside:
    """A run folder that does not count.

    Attributes:
        folder: the run folder.
        reason: why, one line.
        is_fault: whether somebody should look: damage, or rules that changed. An unfinished run is none.
        config: the resolved configuration; {} if it cannot be read, or the run belongs to no cell.
        choices: config group to choice.
    """

    folder: Path
    reason: str
    is_fault: bool
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    choices: Mapping[str, str] = field(default_factory=dict, repr=False)

    @cached_property
    def cell(self) -> str:
        """As of a run; empty if it is not known."""
        return cell_of(self.config) if self.config else ""


@dataclass(frozen=True)
class Records:
    """What was read from folders of run folders.

    Attributes:
        runs: that count, by folder name.
        aside: folders that do not.
    """

    runs: Sequence[Run]
    aside: Sequence[SetAside]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row per run, round and prediction rule; see `runs`."""
        return _frame(self.runs)

    @cached_property
    def cells(self) -> Mapping[str, Sequence[Run]]:
        """Runs by `Run.cell`."""
        found: dict[str, list[Run]] = {}
        for run in self.runs:
            found.setdefault(run.cell, []).append(run)
        return found

    @property
    def faults(self) -> list[str]:
        """One line for each folder that somebody should look at."""
        return [f"{one.folder}: {one.reason}" for one in self.aside if one.is_fault]


def runs(*roots: str | Path) -> pd.DataFrame:
    """Return every recorded run below these folders as one frame.

    Returns:
        One row per run, round and prediction rule. Columns:

        - ``run``: name of its folder; ``folder``: where that is; ``config_hash``; ``cell``, equal for runs that differ
          in the seed alone; ``commit`` of the code.
        - the choices in `GROUPS` and the values in `VALUES`.
        - ``round``, ``predictor``, and whether it is the one that the method reports: ``reported``.
        - ``pooled``, ``client_mean``, ``worst_10``: accuracies in [0, 1], NaN in rounds without an evaluation.
        - ``upload_bytes``, ``download_bytes`` of all clients; ``seconds``, ``seconds.client``, ``seconds.server``.
        - ``diagnostics.<name>`` for the names in `DIAGNOSED`, NaN in rounds without a diagnosis.

        ``frame.attrs["set_aside"]`` has a line for each folder that does not count.
    """
    records = collect(map(Path, roots))
    frame = records.frame.copy()
    frame.attrs["set_aside"] = [f"{one.folder.name}: {one.reason}" for one in records.aside]
    return frame


def cell_of(config: Mapping[str, Any]) -> str:
    """Return a name that is equal for configurations which differ in the seed, or in what changes no number.

    >>> cell_of({"seed": 0, "rounds": 3}) == cell_of({"seed": 1, "rounds": 3})
    True
    """
    kept = dict(config)
    for dotted in NO_RESULT:
        node, _, key = dotted.rpartition(".")
        if node in kept and key in kept[node]:
            kept[node] = {**kept[node], key: None}
        elif dotted in kept:
            kept[dotted] = None
    return config_hash(kept)


def collect(roots: Iterable[Path], validated: bool = False) -> Records:
    """Read every run folder below the roots.

    A folder counts as one of a run if it holds a status, a configuration, records or a summary.

    Args:
        roots: folders of run folders.
        validated: whether runs with ``validation`` are wanted, and no others; such runs never stand beside those that
            were scored on what tables score.
    """
    names = (STATUS, CONFIG, METRICS, SUMMARY)
    folders = sorted({path.parent for root in roots for name in names for path in root.glob(f"*/{name}")})
    read = [_read(folder, validated) for folder in folders]
    return Records([one for one in read if isinstance(one, Run)], [one for one in read if isinstance(one, SetAside)])


def _read(folder: Path, validated: bool) -> Run | SetAside:
    known: tuple[dict[str, Any], ...] = ()
    try:
        known = config, choices = read_configuration(folder)
        cell_of(config)
        status = read_object(folder / STATUS)
        if status.get("state") not in STATES:
            raise UnusableRun(f"{STATUS}: state is {status.get('state')!r}, expected one of {', '.join(STATES)}")
        if status["state"] != "finished":
            reason = f": {status['reason']}" if status.get("reason") else ""
            return SetAside(folder, f"{status['state']}{reason}".partition("\n")[0], False, *known)
        if ("validation" in config) != validated:
            return SetAside(folder, f"scored on the {'test parts' if validated else 'validation parts'}", False)
        return Run(folder, config, choices, *sound_records(folder, config), read_commit(folder))
    except UnusableRun as error:
        return SetAside(folder, str(error), True, *known)
    except MISSHAPEN as error:
        return SetAside(folder, f"the records are not as they are written: {error!r}", True)


def _frame(runs: Sequence[Run]) -> pd.DataFrame:
    """Return the frame of `runs`; what is equal in all rows of a run is held once per run, as a category."""
    facts = pd.DataFrame([_facts(run) for run in runs], columns=[*FACTS, *GROUPS, *VALUES])
    facts[[*TEXTS]] = facts[[*TEXTS]].astype("category")
    parts = [run.rounds.assign(row=number) for number, run in enumerate(runs)]
    rounds = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[*ROUND, "row"])
    frame = facts.join(rounds.set_index("row"), how="right").reset_index(drop=True)
    frame.insert(len(FACTS), "reported", frame.pop("reports").astype(object) == frame["predictor"])
    return frame


def _facts(run: Run) -> dict[str, Any]:
    values = dict(flatten(run.config))
    return {
        "run": run.folder.name,
        "folder": str(run.folder),
        "config_hash": run.summary["config_hash"],
        "cell": run.cell,
        "commit": run.commit,
        "reports": run.summary["predictor"],
        **{group: run.choices.get(group) for group in GROUPS},
        **{key: values.get(key) for key in VALUES},
    }


def _rounds(rows: Rows, timing: Rows) -> pd.DataFrame:
    """Return rounds under each rule, the rules one after another."""
    diagnosed = [row.get("diagnostics") or {} for row in rows]
    shared = {
        "round": [row["round"] for row in rows],
        **{key: [(row.get(key) or {}).get("total") for row in rows] for key in TRAFFIC},
        **{column: [row.get(key) for row in timing] for column, key in SECONDS.items()},
        **{f"diagnostics.{key}": [row.get(key) for row in diagnosed] for key in DIAGNOSED},
    }
    rules = {}
    for rule in predictors(rows):
        scored = [row.get(rule) or {} for row in rows]
        if any(scored):
            rules[rule] = {key: [row.get(key) for row in scored] for key in ACCURACIES}
    parts = [pd.DataFrame({"predictor": rule, **shared, **accuracies}) for rule, accuracies in rules.items()]
    numbers = {column: float for column in ROUND if column not in ("round", "predictor")}
    return pd.concat(parts, ignore_index=True).astype(numbers)[list(ROUND)]
