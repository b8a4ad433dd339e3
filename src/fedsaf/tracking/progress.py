"""What a person sees while a run goes on: one bar on a terminal, one plain line per round elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import progress as bars
from rich.console import Console

from fedsaf.core.types import RoundRecord
from fedsaf.tracking.summary import Scores


class Progress:
    """Shows nothing, and says what a display has, on rank zero alone: ``stop`` is called always."""

    def start(self, rounds: int, first_round: int, clients_per_round: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Open the display of T = ``rounds``.

        The first to train is ``first_round``; ``rows`` are those recorded before, for the best accuracy so far.
        """

    def advance(self, client: int) -> None:
        """Show that a client was trained."""

    def round(self, record: RoundRecord) -> None:
        """Show a recorded round."""

    def stop(self) -> None:
        """Close the display and free the terminal."""


class PlainProgress(Progress):
    """Prints one line per round, without control characters, at once; a line per client would hide the rounds."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def start(self, rounds: int, first_round: int, clients_per_round: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Remember how many rounds there are and which was best so far."""
        self.rounds, self.scores = rounds, Scores(rows)

    def round(self, record: RoundRecord) -> None:
        """Print the line of the round."""
        self.scores.add({**record.metrics, "round": record.round})
        parts = [f"round {record.round}/{self.rounds}", *score_texts(self.scores)]
        if "total" in record.metrics.get("loss", {}):
            parts.append(f"loss {record.metrics['loss']['total']:.4f}")
        if "total" in record.timing:
            parts.append(f"{record.timing['total']:.1f} s")
        self.console.out("  ".join(parts), highlight=False)
        self.console.file.flush()


class BarProgress(Progress):
    """One bar over the clients of all rounds, with the round, current and best accuracy and the time left."""

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
        self.scores, self.rounds, self.clients = Scores(rows), rounds, clients_per_round
        self.task = self.bar.add_task("", total=rounds * self.clients, rounds=rounds, clients=self.clients)
        self._show(first_round - 1)
        self.bar.start()

    def _show(self, done: int) -> None:
        """Show the beginning of the round after the last one that is done."""
        self.trained = 0
        self.bar.update(
            self.task,
            completed=done * self.clients,
            round=min(done + 1, self.rounds),
            client=self.clients if done == self.rounds else 0,
            scores="  ".join(score_texts(self.scores)),
        )

    def advance(self, client: int) -> None:
        """Move the bar by one client."""
        self.trained += 1
        self.bar.update(self.task, advance=1, client=self.trained)

    def round(self, record: RoundRecord) -> None:
        """Close the round on the bar: clients that failed move it too."""
        self.scores.add({**record.metrics, "round": record.round})
        self._show(record.round)

    def stop(self) -> None:
        """Leave the bar as it is and free the terminal."""
        self.bar.stop()


def score_texts(scores: Scores) -> list[str]:
    """Return one text per prediction rule that was evaluated.

    >>> score_texts(Scores([{"round": t, "classifier": {"pooled": value}} for t, value in ((1, 0.73), (2, 0.712))]))
    ['classifier 71.2 % (best 73.0 %)']
    """
    return [
        f"{name.replace('_', ' ')} {100 * last['pooled']:.1f} % (best {100 * scores.best[name]['pooled']:.1f} %)"
        for name, last in scores.last.items()
    ]


def make_progress() -> Progress:
    """Return a bar on a terminal, lines elsewhere."""
    console = Console()
    return BarProgress(console) if console.is_terminal and not console.is_dumb_terminal else PlainProgress(console)
