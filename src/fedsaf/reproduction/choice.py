"""Which recorded runs are behind a number: those that meet its requirement, one per seed, if they agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedsaf.reproduction.agreement import added_words, is_unseen
from fedsaf.reproduction.collect import RecordedRun, SetAside
from fedsaf.reproduction.selection import DATASET, Requirement, on_stand_in, satisfies

SHOWN_KEYS = 6
"""Differing keys that a message names."""
MISSING = object()
DIAGNOSTICS, DIAGNOSTICS_EVERY = "diagnostics", "diagnostics_every"
"""What is measured beside the results, and how often."""
NEVER = 10**9


@dataclass
class ChosenRuns:
    """The runs that count, and what else seemed to belong here.

    Attributes:
        runs: one per seed, in order of seeds; the one that was diagnosed most often if several agree.
        stand_in: the data set that was used in place of the required one; empty if none was.
        notes: what a reader should know.
        problems: why runs that seem to belong here do not count.
    """

    runs: list[RecordedRun] = field(default_factory=list)
    stand_in: str = ""
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def choose(required: Requirement, scale: str, runs: Sequence[RecordedRun], aside: Sequence[SetAside]) -> ChosenRuns:
    """Choose the runs that recorded what is required; in a reduced scale those on data that stand in, if there is none.

    Args:
        required: dotted keys and values.
        scale: smoke, small or full.
        runs: recorded runs.
        aside: folders that do not count; those that belong here are named.
    """
    chosen = ChosenRuns()
    matching = [run for run in runs if satisfies(run.settings, required)]
    if scale == "full":
        matching = _to_the_letter(matching, required, chosen.problems)
    elif not matching:
        matching = [run for run in runs if satisfies(run.settings, on_stand_in(required))]
        chosen.stand_in = " or ".join(sorted({run.settings[DATASET] for run in matching}))
    asked = [required] if scale == "full" else [required, on_stand_in(required)]
    for folder in aside:
        if any(satisfies(folder.settings, one) for one in asked):
            (chosen.problems if folder.is_fault else chosen.notes).append(f"{folder.folder.name}: {folder.reason}")
    chosen.runs = _agreeing(matching, chosen.problems)
    for run in chosen.runs:
        if failed := run.summary["num_failed_clients"]:
            chosen.notes.append(f"{run.folder.name}: a client failed and was left out, {failed} times in all")
    return chosen


def _to_the_letter(runs: Sequence[RecordedRun], required: Requirement, problems: list[str]) -> list[RecordedRun]:
    """Return the runs whose command line changed nothing but what the labels name; the others are noted."""
    kept = []
    for run in runs:
        if words := added_words(run, required):
            problems.append(
                f"{run.folder.name}: {' '.join(words)} is not of the paper's experiment; start it without, "
                "with force=true where that leaves every value as it is"
            )
        else:
            kept.append(run)
    return kept


def _agreeing(runs: Sequence[RecordedRun], problems: list[str]) -> list[RecordedRun]:
    """Return one run per seed; [] with the problem noted if the runs are not of one experiment, or contradict."""
    by_seed: dict[int, RecordedRun] = {}
    ordered = sorted(runs, key=lambda run: (run.seed, run.values.get(DIAGNOSTICS_EVERY) or NEVER, run.folder.name))
    for run in ordered:
        if keys := _differing(ordered[0].values, run.values):
            problems.append(f"{ordered[0].folder.name} and {run.folder.name} are different experiments: {keys}")
            return []
        other = by_seed.setdefault(run.seed, run)
        if _results(other) != _results(run):
            problems.append(
                f"{other.folder.name} ({other.folder.parent}) and {run.folder.name} ({run.folder.parent}) have seed "
                f"{run.seed} and one configuration, but different results"
            )
            return []
    return list(by_seed.values())


def _results(run: RecordedRun) -> list[dict[str, Any]]:
    """Return what must be equal in two runs of one configuration and seed."""
    return [{key: value for key, value in row.items() if key != DIAGNOSTICS} for row in run.rows]


def _differing(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """Return which keys differ and how; empty if none does."""
    keys = [key for key in sorted(ours | theirs) if ours.get(key, MISSING) != theirs.get(key, MISSING)]
    keys = [key for key in keys if not is_unseen(key)]
    texts = [f"{key} is {_shown(ours, key)} and {_shown(theirs, key)}" for key in keys[:SHOWN_KEYS]]
    return "; ".join([*texts, f"and {len(keys) - SHOWN_KEYS} more"] if len(keys) > SHOWN_KEYS else texts)


def _shown(settings: Mapping[str, Any], key: str) -> str:
    return str(settings[key]) if key in settings else "absent"
