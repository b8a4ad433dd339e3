"""Signals that ask a run to save and leave: Ctrl-C, SIGTERM (schedulers), SIGUSR1 (Slurm's early warning)."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from types import FrameType

EXIT_AGAIN = 75
"""EX_TEMPFAIL: the run was interrupted, everything recorded is saved, the same command continues it."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


def leave_on_request() -> None:
    """Let the signals end this process at once with `EXIT_AGAIN`, wherever no `StopRequest` is at work.

    Before, between and after the rounds there is nothing to finish: every file is written atomically.
    """
    for number in SIGNALS:
        signal.signal(number, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(EXIT_AGAIN)


class Interrupted(Exception):  # noqa: N818 - not an error: the run leaves on request
    """The run was asked to stop and has saved what it had."""


class StopRequest:
    """A flag that the signals set, polled between training steps; a second Ctrl-C stops at once.

    As a context manager it installs the handlers and puts the former ones back. Spawned ranks are told too, since a
    scheduler may tell only their parent; by SIGTERM, which also ends one that does not listen yet. Outside the main
    thread it never fires.

    Args:
        insist: whether a second Ctrl-C raises; False in spawned ranks, which a terminal and their parent both tell.
    """

    def __init__(self, insist: bool) -> None:
        self.requested = False
        self.insist = insist
        self._former: dict[int, object] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            self._former = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested and self.insist and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True
        for child in multiprocessing.active_children():
            if child.pid is not None:
                os.kill(child.pid, signal.SIGTERM)
