import io
import re

import pytest
from rich.console import Console

from fedsaf.tracking.progress import BarProgress, PlainProgress, Progress, make_progress


def run(progress, make_record, rows=(), first_round=1):
    progress.start(rounds=3, first_round=first_round, clients_per_round=2, rows=rows)
    for round in range(first_round, 4):
        progress.advance(0)
        progress.advance(1)
        progress.round(make_record(round, hits=((10, 60), (5, 50), (5, 45))[round - 1], prototype_hits=(3, 9)))
    progress.stop()


def test_one_plain_line_per_round_off_a_terminal(make_record, capsys):
    run(make_progress(), make_record)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "round 1/3  classifier 70.0 % (best 70.0 %)  nearest prototype 12.0 % (best 12.0 %)  loss 0.7500  4.0 s",
        "round 2/3  classifier 55.0 % (best 70.0 %)  nearest prototype 12.0 % (best 12.0 %)  loss 0.5000  4.0 s",
        "round 3/3  classifier 50.0 % (best 70.0 %)  nearest prototype 12.0 % (best 12.0 %)  loss 0.3750  4.0 s",
    ]


def test_best_survives_a_resume(make_record, capsys):
    run(make_progress(), make_record, rows=[make_record(1, hits=(10, 80)).metrics], first_round=2)
    assert capsys.readouterr().out.splitlines()[0].startswith("round 2/3  classifier 55.0 % (best 90.0 %)")


def test_no_display_shows_nothing(make_record, capsys):
    run(Progress(), make_record)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("first_round", [1, 3])
def test_one_bar_on_a_terminal_ends_full(make_record, first_round):
    text = io.StringIO()
    progress = BarProgress(Console(file=text, force_terminal=True, width=200))
    run(progress, make_record, first_round=first_round)
    task = progress.bar.tasks[0]
    assert (task.total, task.completed) == (6, 6)
    last = re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", text.getvalue()).splitlines()[-1]
    assert "round 3/3" in last
    assert "client 2/2" in last
    assert "classifier 50.0 %" in last


def test_failed_clients_move_the_bar_too(make_record):
    progress = BarProgress(Console(file=io.StringIO(), force_terminal=True))
    progress.start(rounds=2, first_round=1, clients_per_round=2, rows=())
    progress.advance(0)
    progress.round(make_record(1))
    assert progress.bar.tasks[0].completed == 2
    progress.stop()


def test_an_unevaluated_round_still_has_its_line(make_record, capsys):
    progress = PlainProgress(Console())
    progress.start(rounds=2, first_round=1, clients_per_round=2, rows=())
    record = make_record(1)
    record.metrics["classifier"] = None
    progress.round(record)
    assert capsys.readouterr().out == "round 1/2  loss 0.7500  4.0 s\n"
