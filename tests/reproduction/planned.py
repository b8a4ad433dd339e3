"""The runs that a target plans, as they would be recorded; composed once per process, since that takes time."""

from functools import cache
from pathlib import Path
from types import SimpleNamespace

from fedsaf.reproduction.cell import Cell
from fedsaf.reproduction.collect import RecordedRun
from fedsaf.reproduction.composer import Composer
from fedsaf.reproduction.experiments import cells

COMPOSER = Composer(Path(__file__).resolve().parents[2] / "conf")


@cache
def planned(target, scale):
    return [
        RecordedRun(run.folder, run.config, run.choices, {}, [], [], None, (*run.frame, *run.own))
        for run in cells(target, scale, [], None, COMPOSER)
    ]


def made_cell(experiment, own, frame, config, choices):
    """Return a cell of this configuration, which nobody has composed."""
    composer = SimpleNamespace(choices=lambda words: choices)
    cell = Cell(experiment, "full", dict(word.split("=", 1) for word in own), tuple(frame), composer)
    cell.__dict__["config"] = config
    return cell
