"""Judged claims as Markdown: one line per claim and scale."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from fedsaf.reproduction.claims.contrasts import DOES_NOT, HOLDS, UNDECIDED
from fedsaf.reproduction.claims.judging import Effect, Judged
from fedsaf.reproduction.figures.style import signed

HEAD = """# Claims of the papers, and what recorded runs say

Rebuilt by `make claims` from recorded runs; nothing here is written by hand. Every line is a claim of a paper, the
number and the comparison that decide it, the runs of **one** scale, the effect with its interval, and a verdict.

- An effect is taken per seed, between runs that share split, weights and order; the interval is Student's t over seeds
  at 95 %, of each part by itself. Only seeds count that both sides have. A largest or smallest of several places is
  that of the means over seeds, as in a printed table.
- In the papers' protocol all seeds share one split of the data, so an interval covers weights and order of training,
  not who holds what.
- **holds**: every part's interval lies on the side of the claim. **does not**: all parts have runs, and at least one
  interval lies wholly on the other side. **undecided**: an interval contains the bound, there is one seed only, or runs
  are missing. No verdict comes from missing runs. Where a number has no noise (bytes), one run decides.
- Points are percent points of accuracy. *paper* is the same comparison in the paper's printed means.
- The small scale reduces images, networks, clients and rounds, so its verdicts are about that setting.
"""
UNITS = {"%": " points"}
RATIO = "ratio"


def document(judged: Sequence[Judged], sources: str) -> str:
    """Return the whole page.

    Args:
        judged: claims in the order of the definitions, each in one or more scales.
        sources: where the runs are from, for the counts; no path.
    """
    lines = [HEAD, f"{sources} {counts(judged)}", ""]
    for paper, group in groupby(judged, key=lambda one: one.claim.paper.partition(",")[0]):
        lines += [
            f"## {paper}",
            "",
            "| claim | decided by | runs | effect | verdict |",
            "| --- | --- | --- | --- | --- |",
        ]
        lines += [_line(one) for one in group] + [""]
    remarks = list(dict.fromkeys(text for one in judged for effect in one.effects for text in effect.notes))
    problems = list(dict.fromkeys(text for one in judged for effect in one.effects for text in effect.problems))
    if problems or remarks:
        lines += ["## Runs that do not count, and remarks", ""]
        lines += [f"- **does not count**: {_cell(text)}" for text in problems] + [
            f"- {_cell(text)}" for text in remarks
        ]
    return "\n".join(lines).rstrip() + "\n"


def problems_of(judged: Iterable[Judged]) -> dict[str, list[str]]:
    """Return why runs that seem to belong to a claim do not count, each with the names of these claims."""
    problems: dict[str, dict[str, None]] = {}
    for one in judged:
        for text in (text for effect in one.effects for text in effect.problems):
            problems.setdefault(text, {})[one.claim.name] = None
    return {text: list(names) for text, names in problems.items()}


def counts(judged: Iterable[Judged]) -> str:
    """Return how many claims have which verdict."""
    verdicts = [one.verdict for one in judged]
    not_run = sum(not one.has_runs for one in judged)
    texts = [f"{verdicts.count(word)} {word}" for word in (HOLDS, DOES_NOT, UNDECIDED)]
    return f"Verdicts: {', '.join(texts)}, of which {not_run} not run."


def decided_by(judged: Judged) -> str:
    """Return number, comparison, and the condition under which the claim holds."""
    claim = judged.claim
    side = {"above": "above", "below": "below", "at_most": "at most"}[claim.side]
    texts = [f"{judged.shown}: {claim.comparison}; holds {side} {claim.bound:g}"]
    texts += ["one run decides"] * claim.exact
    return "; ".join([*texts, *([claim.remark] if claim.remark else [])])


def runs_of(judged: Judged) -> str:
    """Return scale, how many runs, their seeds and data that stand in."""
    if not judged.runs:
        return f"{judged.scale}: none" if judged.has_runs else "none"
    seeds = sorted({seed for effect in judged.effects for seed in effect.seeds})
    stand_ins = sorted({effect.stand_in for effect in judged.effects} - {""})
    texts = [f"{judged.scale}: {len(judged.runs)} runs"]
    texts += [f"seeds {', '.join(map(str, seeds))}"] if seeds else []
    return ", ".join([*texts, *(f"on {name} in place of the named data" for name in stand_ins)])


def effect_text(judged: Judged, effect: Effect) -> str:
    """Return one part: its name, effect, interval, number of seeds, the paper's own, and what is missing."""
    ours = effect.reason or ""
    if effect.estimate is not None:
        interval = effect.estimate.interval
        bounds = f" [{', '.join(_number(judged, bound) for bound in interval)}]" if interval else ""
        unit = "" if judged.claim.test == RATIO else _unit(effect)
        ours = f"{_number(judged, effect.estimate.mean)}{bounds}{unit}, n = {effect.estimate.n}"
    printed = "" if effect.printed is None else f" (paper {_number(judged, effect.printed)})"
    return f"{effect.part.name}: {ours}{printed}" if effect.part.name else f"{ours}{printed}"


def verdict_text(judged: Judged) -> str:
    """Return the verdict, with the reason of one that is undecided."""
    return f"{judged.verdict}: {judged.reason}" if judged.reason else judged.verdict


def _line(judged: Judged) -> str:
    claim = judged.claim
    effects = "<br>".join(_cell(effect_text(judged, effect)) for effect in judged.effects)
    verdict = judged.verdict if judged.verdict == UNDECIDED else f"**{judged.verdict}**"
    verdict += f": {_cell(judged.reason)}" if judged.reason else ""
    name = f"{_cell(claim.text)} ({claim.paper})"
    return f"| {name} | {_cell(decided_by(judged))} | {_cell(runs_of(judged))} | {effects} | {verdict} |"


def _number(judged: Judged, value: float) -> str:
    return f"× {value:.3g}" if judged.claim.test == RATIO else signed(value, 2)


def _unit(effect: Effect) -> str:
    unit = effect.part.arms[0].number.unit
    return UNITS.get(unit, f" {unit}" if unit else "")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
