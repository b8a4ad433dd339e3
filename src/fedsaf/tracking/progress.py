"""What a person sees while a run goes on: one bar on a terminal, one plain line per round elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rich import progress as bars
from rich.console import Console

from fedsaf.core.types import RoundRecord
from fedsaf.tracking.summary import best_of, evaluated, predictors


class Progress(Protocol):
    """``start`` once, ``advance`` per trained client, ``round`` per recorded round, ``stop`` always."""

    def start(self, rounds: int, first_round: int, clients_per_round: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Open the display.

        Args:
            rounds: T.
            first_round: first round that will train: 1, or the one after the checkpoint.
            clients_per_round: size of a cohort.
            rows: rounds recorded before, for the best accuracy so far.
        """

    def advance(self, client: int) -> None:
        """Show that a client was trained."""

    def round(self, record: RoundRecord) -> None:
        """Show a recorded round."""

    def stop(self) -> None:
        """Close the display."""


class NullProgress:
    """Shows nothing; for every rank but the first."""

    def start(self, rounds: int, first_round: int, clients_per_round: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Do nothing."""

    def advance(self, client: int) -> None:
        """Do nothing."""

    def round(self, record: RoundRecord) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""


class PlainProgress:
    """Prints one line per round, without control characters, at once.

    Args:
        console: where to print.
    """

    def __init__(self, console: Console) -> None:
        self.console = console

    def start(self, rounds: int, first_round: int, clients_per_round: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Remember how many rounds there are and which was best so far."""
        self.rounds, self.scores = rounds, Scores(rows)

    def advance(self, client: int) -> None:
        """Do nothing: a line per client would hide the rounds."""

    def round(self, record: RoundRecord) -> None:
        """Print the line of the round."""
        self.scores.add(record.metrics, record.round)
        parts = [f"round {record.round}/{self.rounds}", *self.scores.texts()]
        if "total" in record.metrics.get("loss", {}):
            parts.append(f"loss {record.metrics['loss']['total']:.4f}")
        if "total" in record.timing:
            parts.append(f"{record.timing['total']:.1f} s")
        self.console.out("  ".join(parts), highlight=False)
        self.console.file.flush()

    def stop(self) -> None:
        """Do nothing."""


class BarProgress:
    """One bar over the clients of all rounds, with the round, current and best accuracy and the time left.

    Args:
        console: a terminal.
    """

    def __init__(self, console: Console) -> None:
        self.bar = bars.Progress(
            bars.TextColumn("round {task.fields[round]}/{task.fields[rounds]}"),
            bars.BarColumn(),
            bars.TextColumn("client {task.fields[client]}/{task.fields[clients]}"),
            bars.TextColumn("{task.fields[scores]}"),
            bars.TimeRemainingColumn(),
            console=console,
        )

    def start(self, rounds: int, first_round: int, clients_per_round: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Draw the bar, filled up to the rounds that were done before."""
        self.scores, self.clients, self.current = Scores(rows), clients_per_round, min(first_round, rounds)
        self.task = self.bar.add_task(
            "",
            total=rounds * clients_per_round,
            completed=(first_round - 1) * clients_per_round,
            round=self.current,
            rounds=rounds,
            client=0,
            clients=clients_per_round,
            scores="  ".join(self.scores.texts()),
        )
        self.trained = 0
        self.bar.start()

    def advance(self, client: int) -> None:
        """Move the bar by one client."""
        self.trained += 1
        self.bar.update(self.task, advance=1, client=self.trained)

    def round(self, record: RoundRecord) -> None:
        """Close the round on the bar: clients that failed move it too."""
        self.scores.add(record.metrics, record.round)
        rounds = self.bar.tasks[0].fields["rounds"]
        self.trained = 0
        self.bar.update(
            self.task,
            completed=record.round * self.clients,
            round=min(record.round + 1, rounds),
            client=self.clients if record.round == rounds else 0,
            scores="  ".join(self.scores.texts()),
        )

    def stop(self) -> None:
        """Leave the bar as it is and free the terminal."""
        self.bar.stop()


class Scores:
    """Current and best pooled accuracy of each prediction rule.

    Args:
        rows: rounds recorded before.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.history = {name: evaluated(rows, name) for name in predictors(rows)}

    def add(self, metrics: Mapping[str, Any], round: int) -> None:
        """Take in one round."""
        row = [{**metrics, "round": round}]
        for name in predictors(row):
            self.history.setdefault(name, []).extend(evaluated(row, name))

    def texts(self) -> list[str]:
        """Return one text per rule that was evaluated.

        >>> scores = Scores([{"round": 1, "classifier": {"pooled": 0.73}}])
        >>> scores.add({"classifier": {"pooled": 0.712}}, 2)
        >>> scores.texts()
        ['classifier 71.2 % (best 73.0 %)']
        """
        return [
            f"{name.replace('_', ' ')} {100 * seen[-1]['pooled']:.1f} % (best {100 * best['pooled']:.1f} %)"
            for name, seen in self.history.items()
            if (best := best_of(seen))
        ]


def make_progress(rank: int) -> Progress:
    """Return the display for a process: a bar on a terminal, lines elsewhere, nothing on ranks other than 0."""
    console = Console()
    if rank != 0:
        return NullProgress()
    return BarProgress(console) if console.is_terminal and not console.is_dumb_terminal else PlainProgress(console)
