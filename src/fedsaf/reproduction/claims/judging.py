"""From recorded runs to verdicts: paired over seeds, one scale at a time, and never from runs that are missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from fedsaf.reproduction.agreement import Placed, differences
from fedsaf.reproduction.choice import ChosenRuns, choose
from fedsaf.reproduction.claims.contrasts import CONTRASTS, DOES_NOT, HOLDS, UNDECIDED, Estimate, estimate, verdict
from fedsaf.reproduction.claims.definition import EXTREMES, Arm, Claim, Part, Spot
from fedsaf.reproduction.collect import RecordedRun, SetAside
from fedsaf.reproduction.measures import rule_of
from fedsaf.reproduction.records import UnusableRun

SPLIT_KEYS = ("dataset", "partition", "num_clients", "validation")
"""Parts of a configuration that, with the seed, decide who holds which samples."""


@dataclass
class Effect:
    """What the runs say about one part of a claim.

    Attributes:
        part: which.
        estimate: the effect over seeds; None where runs are missing.
        verdict: holds, does not or undecided.
        reason: why it is undecided; empty otherwise.
        printed: the effect in the paper's own numbers; None if it does not print them.
        stand_in: the data set that was used in place of the one of the labels; empty if none was.
        seeds: those that all places have.
        runs: folder names of the runs that count.
        missing: places without a number.
        notes: what a reader should know.
        problems: why runs that seem to belong here do not count.
    """

    part: Part
    estimate: Estimate | None = None
    verdict: str = UNDECIDED
    reason: str = ""
    printed: float | None = None
    stand_in: str = ""
    seeds: list[int] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def has_runs(self) -> bool:
        """Whether any run has a place here, or seems to."""
        return bool(self.runs or self.problems)


@dataclass(frozen=True)
class Judged:
    """A claim and what the runs of one scale say about it.

    Attributes:
        claim: which.
        scale: smoke, small or full.
        effects: one per part.
        shown: which number of a run is compared.
    """

    claim: Claim
    scale: str
    effects: list[Effect]
    shown: str

    @property
    def verdict(self) -> str:
        """Holds if every part does; does not if all parts have runs and one says so; else undecided."""
        verdicts = [effect.verdict for effect in self.effects]
        if all(word == HOLDS for word in verdicts):
            return HOLDS
        is_complete = all(effect.estimate is not None for effect in self.effects)
        return DOES_NOT if is_complete and DOES_NOT in verdicts else UNDECIDED

    @property
    def reason(self) -> str:
        """Why it is undecided; empty otherwise."""
        if self.verdict != UNDECIDED:
            return ""
        if not self.has_runs:
            return "not run"
        undecided = [effect for effect in self.effects if effect.verdict == UNDECIDED]
        reasons = dict.fromkeys(effect.reason for effect in undecided)
        if len(self.effects) == 1:
            return "; ".join(reasons)
        return f"{len(undecided)} of {len(self.effects)} parts: {'; '.join(reasons)}"

    @property
    def has_runs(self) -> bool:
        """Whether any run has a place here, or seems to."""
        return any(effect.has_runs for effect in self.effects)

    @property
    def runs(self) -> list[str]:
        """Folder names of all runs that count, each once."""
        return list(dict.fromkeys(name for effect in self.effects for name in effect.runs))


def judge(claim: Claim, scale: str, runs: Sequence[RecordedRun], aside: Sequence[SetAside]) -> Judged:
    """Judge a claim by recorded runs of one scale; scales are never mixed.

    Args:
        claim: which.
        scale: smoke, small or full.
        runs: recorded runs.
        aside: folders that do not count; those that belong to the claim are named.
    """
    effects, rules = [], set()
    for part in claim.parts:
        gatherer = _Gatherer(claim, scale, runs, aside, Effect(part, printed=claim.printed(part)))
        effects.append(gatherer.effect())
        rules |= gatherer.rules
    texts = dict.fromkeys(arm.number.text for part in claim.parts for arm in part.arms)
    rule = " or ".join(sorted(rules)) or claim.rule
    return Judged(claim, scale, effects, " against ".join(texts).format(rule=rule))


def judge_all(
    claims: Iterable[Claim], scales: Sequence[str], runs: Sequence[RecordedRun], aside: Sequence[SetAside]
) -> list[Judged]:
    """Judge every claim in each scale that has runs of it; one that has none stands there once, in the last scale."""
    result = []
    for claim in claims:
        judged = [judge(claim, scale, runs, aside) for scale in scales]
        result += [one for one in judged if one.has_runs] or judged[-1:]
    return result


class _Gatherer:
    """Collects the numbers of one part."""

    def __init__(
        self, claim: Claim, scale: str, runs: Sequence[RecordedRun], aside: Sequence[SetAside], effect: Effect
    ) -> None:
        self._claim, self._scale, self._all, self._aside, self._effect = claim, scale, runs, aside, effect
        self._placed: list[Placed] = []
        self._data: set[str] = set()
        self.rules: set[str] = set()

    def effect(self) -> Effect:
        """Return the effect of the part, with its verdict or the reason why there is none."""
        effect, claim = self._effect, self._claim
        arms = [self._arm(arm) for arm in effect.part.arms]
        effect.runs = list(dict.fromkeys(run.folder.name for run, _ in self._placed))
        effect.problems = list(dict.fromkeys(effect.problems))
        effect.notes = list(dict.fromkeys(effect.notes))
        effect.reason = self._obstacle()
        if effect.reason:
            return effect
        effect.stand_in = self._data.pop()
        effect.seeds = sorted(set.intersection(*(set(arm) for arm in arms)))
        lonely = sorted({run.seed for run, _ in self._placed} - set(effect.seeds))
        if lonely:
            effect.notes.append(f"{claim.name}: only some places have seed {', '.join(map(str, lonely))}")
        if not effect.seeds:
            effect.reason = "no seed that all of them have"
            return effect
        try:
            values = [CONTRASTS[claim.test].combine([arm[seed] for arm in arms]) for seed in effect.seeds]
        except ValueError as error:
            effect.reason = str(error)
            return effect
        effect.estimate = estimate(values, claim.test, claim.exact)
        effect.verdict = verdict(effect.estimate, claim.side, claim.bound, claim.exact)
        if effect.verdict == UNDECIDED:
            one = "one seed, which has no interval"
            effect.reason = one if effect.estimate.interval is None else f"the interval contains {claim.bound:g}"
        return effect

    def _arm(self, arm: Arm) -> dict[int, float]:
        """Return one number per seed that all places of an arm have.

        An extreme is that of the means over seeds, as of a printed table, and its place is the same for every seed: the
        extreme of each seed would lie further out the more noise there is.
        """
        places = [self._spot(spot, arm) for spot in arm.spots]
        seeds = sorted(set.intersection(*(set(place) for place in places)))
        if seeds and arm.take in EXTREMES:
            best = EXTREMES[arm.take](places, key=lambda place: fmean(place[seed] for seed in seeds))
            return {seed: best[seed] for seed in seeds}
        return {seed: fmean(place[seed] for place in places) for seed in seeds}

    def _spot(self, spot: Spot, arm: Arm) -> dict[int, float]:
        effect = self._effect
        required = self._claim.requirement(spot, self._scale)
        chosen: ChosenRuns = choose(required, self._scale, self._all, self._aside)
        effect.problems += chosen.problems
        effect.notes += chosen.notes
        values = {}
        for run in chosen.runs:
            try:
                value = arm.number.value(run, self._claim.rule, spot.labels["setting"])
            except UnusableRun as error:
                effect.problems.append(str(error))
                continue
            if value is None:
                effect.problems.append(f"{run.folder.name}: has no number of this kind")
                continue
            values[run.seed] = value
            self._placed.append((run, required))
            if self._claim.rule:
                self.rules.add(rule_of(run, self._claim.rule).replace("_", " "))
        if values:
            self._data.add(chosen.stand_in)
        else:
            effect.missing.append(spot.name)
        return values

    def _obstacle(self) -> str:
        """Return why the numbers cannot be compared; empty if they can."""
        num_spots = sum(len(arm.spots) for arm in self._effect.part.arms)
        if len(self._effect.missing) == num_spots:
            return "not run" if not self._effect.problems else "no run that counts"
        if self._effect.missing:
            return f"{len(self._effect.missing)} of {num_spots} places without a run that counts"
        if len(self._data) > 1:
            return f"runs on different data: {', '.join(name or 'the named' for name in sorted(self._data))}"
        splits: dict[tuple, set[str]] = {}
        for run, _ in self._placed:
            keys = sorted((key, repr(value)) for key, value in run.values.items() if key.split(".")[0] in SPLIT_KEYS)
            splits.setdefault((run.seed, *keys), set()).add(run.summary["partition_hash"])
        if any(len(hashes) > 1 for hashes in splits.values()):
            return "runs of one seed have different splits, so they are no pairs"
        if different := differences(self._placed):
            return f"the sides were run with different {', '.join(different)}"
        commits = {run.commit for run, _ in self._placed} - {None}
        if len(commits) > 1:
            self._effect.notes.append(f"runs of {len(commits)} versions of the code")
        return ""
