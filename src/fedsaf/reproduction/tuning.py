"""Which weights of the two levels each loss is given: the best on samples that no table scores."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev

import yaml
from rich.table import Table

from fedsaf.core.config import ConfigError
from fedsaf.reproduction.cell import Cell
from fedsaf.reproduction.collect import RecordedRun
from fedsaf.reproduction.selection import DEFINITIONS

EXPERIMENT = "tune"
WEIGHTS = ("proto_weight", "inst_weight")
"""Keys of the group ``alignment``: lambda and gamma of FedSAF, Eq. (19)."""
DEFINITION = DEFINITIONS / "weights.yaml"
Weights = tuple[float, float]


@dataclass(frozen=True)
class Score:
    """How one loss does with one pair of weights.

    Attributes:
        alignment: the loss, as a choice of the group ``alignment``.
        weights: lambda and gamma.
        accuracies: of the last round of each run (seed) on held-out samples, pooled over clients, in [0, 1].
        lacking: runs without a result: not finished, or failed.
    """

    alignment: str
    weights: Weights
    accuracies: Sequence[float]
    lacking: int

    @property
    def mean(self) -> float:
        """Mean over runs; needs at least one."""
        return fmean(self.accuracies)


def scores(runs: Sequence[Cell], recorded: Mapping[Path, RecordedRun]) -> list[Score]:
    """Return the score of every pair of weights, in the order of the runs.

    Args:
        runs: of the experiment.
        recorded: finished ones by folder.
    """
    pairs: dict[tuple[str, Weights], list[float | None]] = {}
    for run in runs:
        lam, gamma = (float(run.config["alignment"][key]) for key in WEIGHTS)
        result = recorded.get(run.folder)
        pairs.setdefault((run.choices["alignment"], (lam, gamma)), []).append(
            None if result is None else result.summary[result.summary["predictor"]]["last"]["pooled"]
        )
    return [
        Score(alignment, weights, [value for value in values if value is not None], values.count(None))
        for (alignment, weights), values in pairs.items()
    ]


def chosen(found: Sequence[Score]) -> dict[str, Score]:
    """Return the best pair of each loss; of equally good ones the smaller weights.

    A pair that lacks a run is no candidate, since seeds differ in difficulty; a loss without a candidate has no entry.
    """
    best: dict[str, Score] = {}
    for score in sorted((score for score in found if not score.lacking), key=lambda score: sum(score.weights)):
        if score.alignment not in best or score.mean > best[score.alignment].mean:
            best[score.alignment] = score
    return best


def score_table(found: Sequence[Score]) -> Table:
    """Return all scores, the chosen ones marked."""
    best = set(map(id, chosen(found).values()))
    seeds = max((len(score.accuracies) + score.lacking for score in found), default=0)
    table = Table(title=f"accuracy in % on held-out samples, last round: mean ± std, n = {seeds}")
    for name in ("alignment", "lambda", "gamma", "accuracy", ""):
        table.add_column(name, justify="left" if name in ("alignment", "") else "right")
    for score in found:
        lam, gamma = score.weights
        value = f"{100 * score.mean:.2f} ± {100 * pstdev(score.accuracies):.2f}" if score.accuracies else "-"
        note = f"{score.lacking} of {seeds} lack a result" if score.lacking else "chosen" if id(score) in best else ""
        table.add_row(score.alignment, f"{lam:g}", f"{gamma:g}", value, note)
    return table


def tuned(best: Mapping[str, Score]) -> dict[str, dict[str, float]]:
    """Return the chosen weights by loss, under the keys of the group ``alignment``."""
    return {name: dict(zip(WEIGHTS, score.weights, strict=True)) for name, score in best.items()}


def write_weights(
    best: Mapping[str, Score], runs: Sequence[Cell], conf: Path, definition: Path = DEFINITION
) -> list[Path]:
    """Write what the scale has from then on wherever a loss is chosen.

    These are the entries of the scale in ``conf/alignment/<loss>.yaml``, which runs read, and the same numbers in the
    definition by which tables know such runs.

    Args:
        best: chosen weights by loss.
        runs: of the experiment.
        conf: the configuration folder.
        definition: ``weights.yaml`` of the tables.

    Raises:
        ConfigError: the weights were not chosen on the data that the scale is about.
    """
    check_writable(runs)
    scale, written = runs[0].config["scale"], []
    for name, score in best.items():
        path = conf / "alignment" / f"{name}.yaml"
        text = path.read_text(encoding="utf-8")
        for key, value in zip(WEIGHTS, score.weights, strict=True):
            text = _with_entry(text, key.removesuffix("_weight"), scale, value)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    _define(tuned(best), scale, definition)
    return [*written, definition]


def check_writable(runs: Sequence[Cell]) -> None:
    """Raise a ConfigError unless weights that are chosen by these runs mean something for their scale."""
    scale, stand_in = runs[0].config["scale"], runs[0].config["stand_in_for"]
    if scale == "smoke" or stand_in:
        why = f"embedded data take the place of {stand_in}" if stand_in else "numbers of scale smoke mean nothing"
        raise ConfigError(f"--write: {why}, so these weights are not written")


def _define(weights: Mapping[str, Mapping[str, float]], scale: str, definition: Path) -> None:
    """Put the weights of a scale into the definition of the tables, whose comments and other scales stay."""
    text = definition.read_text(encoding="utf-8")
    content = yaml.safe_load(text)
    content[scale] = {**(content.get(scale) or {}), **weights}
    comments = "".join(f"{line}\n" for line in text.splitlines() if line.startswith("#"))
    blocks = (
        f"\n{name}:\n" + "".join(f"  {loss}: {_flow(pair)}\n" for loss, pair in of_scale.items())
        for name, of_scale in content.items()
    )
    definition.write_text(comments + "".join(blocks), encoding="utf-8")


def _flow(pair: Mapping[str, float]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in pair.items()) + "}"


def _with_entry(text: str, level: str, scale: str, value: float) -> str:
    r"""Return the text of a file of ``conf/alignment`` in which a level has this weight at this scale.

    >>> _with_entry("weights:\n  proto: 0.1  # lambda", "proto", "small", 1.0)
    'weights:\n  proto: ${case:${scale},{small:1.0,default:0.1}}  # lambda'
    """
    found = re.search(rf"^  {level}: (?:\$\{{case:\$\{{scale\}},\{{(.*?)\}}\}}|(\S+))", text, re.MULTILINE)
    if found is None:
        raise ConfigError(f"conf/alignment has no weight {level} that could have a value for scale {scale}")
    entries = dict(entry.split(":") for entry in found[1].split(",")) if found[1] else {"default": found[2]}
    entries = {scale: str(value)} | {name: kept for name, kept in entries.items() if name != scale}
    written = ",".join(f"{name}:{weight}" for name, weight in entries.items())
    return text[: found.start()] + f"  {level}: ${{case:${{scale}},{{{written}}}}}" + text[found.end() :]
