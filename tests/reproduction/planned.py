"""The runs that a target plans, as they would be recorded; composed once per process, since that takes time."""

from functools import cache
from pathlib import Path

from fedsaf.reproduction.collect import RecordedRun
from fedsaf.reproduction.sweep import Composer, runs_of

COMPOSER = Composer(Path(__file__).resolve().parents[2] / "conf")


@cache
def planned(target, scale):
    return [
        RecordedRun(run.folder, run.config, run.choices, {}, [], [], None, (*run.frame, *run.own))
        for run in runs_of(target, scale, [], None, COMPOSER)
    ]
