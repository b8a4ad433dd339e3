"""The mirror of a run in Weights & Biases: it follows the records, and the run never depends on it.

``wandb`` is imported when a :class:`WandbTracker` starts. No exception leaves a tracker: a mirror that fails says so
once and stays silent, and the run goes on.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsaf.core.types import RoundRecord
from fedsaf.tracking.mirrored import Tally, chosen, numbers_of, run_labels
from fedsaf.tracking.upload import FIRST_ROUND, PARTS, service_problem

log = logging.getLogger(__name__)

MODES = ("auto", "online", "offline", "disabled")


class Tracker:
    """Mirrors nothing, and is what a mirror has: ``start`` once, ``log`` per round, ``finish`` always. None raises."""

    def start(self, folder: Path, config: Mapping[str, Any], choices: Mapping[str, str], run_id: str | None) -> None:
        """Open the mirror of a run, on rank zero alone.

        Args:
            folder: run folder.
            config: the resolved configuration, plain values.
            choices: config group to choice.
            run_id: `state` in the checkpoint of an interrupted run, None for a new one.
        """

    def log(self, record: RoundRecord) -> None:
        """Mirror one round."""

    def finish(self, exit_code: int) -> None:
        """Close the mirror, also after an error; 0 means that the run finished."""

    def state(self) -> dict[str, str | None]:
        """Return what the checkpoint must keep: ``run_id``, under which the run goes on after a resume."""
        return {"run_id": None}


class WandbTracker(Tracker):
    """Mirrors a run in Weights & Biases, online or into an offline file in the run folder; it never asks anything.

    A resumed run keeps its id. Online it is continued. Offline every start writes a file of its own,
    ``wandb/offline-run-<time>-<id>``, and ``make sync`` uploads the parts of one id in order of rounds into one run;
    they do not overlap, as a round is logged once it is in a checkpoint. ``round`` is the axis of all metrics.

    Args:
        project: project name.
        entity: user or team; None for the default of the account.
        mode: ``auto`` and ``online`` go online if a key is found and the server answers in time, else offline;
            ``offline`` never contacts it; ``disabled`` mirrors nothing.
        init_timeout: seconds the server has to accept the run before it goes offline.
        finish_timeout: seconds for the last upload; what is left stays in the file, for ``make sync``.
        client_table_every: every k-th round carries a table with one row per client, and so does the last; 0 for the
            last alone. Clients never get metric names of their own.

    Raises:
        ValueError: unknown mode, or a limit that is not positive.
    """

    def __init__(
        self,
        project: str,
        entity: str | None,
        mode: str,
        init_timeout: float,
        finish_timeout: float,
        client_table_every: int,
    ) -> None:
        mode = {"": "auto", "dryrun": "offline"}.get(mode, mode)  # what else WANDB_MODE may hold
        if mode not in MODES:
            raise ValueError(f"logger.mode (or WANDB_MODE) is {mode!r}; choose one of {', '.join(MODES)}")
        for name, value in (("init_timeout", init_timeout), ("finish_timeout", finish_timeout)):
            if value <= 0:
                raise ValueError(f"{name}: got {value}, expected a positive number of seconds")
        self.project, self.entity, self.mode = project, entity, mode
        self.init_timeout, self.finish_timeout = init_timeout, finish_timeout
        self.client_table_every = client_table_every
        self._run: Any = None
        self._run_id: str | None = None
        self._rounds = 0
        self._tally: Tally | None = None
        self._broken = self._is_offline = False
        self._variables: list[str] = []

    def start(self, folder: Path, config: Mapping[str, Any], choices: Mapping[str, str], run_id: str | None) -> None:
        """Open the run; go offline if there is no key, if the key is refused or if nobody answers in time."""
        if self.mode == "disabled":
            return
        self._run_id = run_id or secrets.token_hex(4)
        self._rounds = config["rounds"]
        self._tally = Tally((config.get("method") or {}).get("predictor"), folder)
        with self._guard("start"):
            folder.mkdir(parents=True, exist_ok=True)
            # Every file of wandb stays in the run folder; its telemetry must not delay the end of an offline process.
            wanted = {"WANDB_DATA_DIR": str(folder / "wandb"), "WANDB_ERROR_REPORTING": "false"}
            self._variables = [name for name in wanted if name not in os.environ]
            os.environ.update({name: wanted[name] for name in self._variables})
            self._run = self._open(folder, config, choices)
            self._run.define_metric("round")
            self._run.define_metric("*", step_metric="round")

    def log(self, record: RoundRecord) -> None:
        """Mirror one round with one call.

        Online the step of the service is never set, so no round can be refused. Offline it is the round, since every
        part would begin at step 0 again, and steps of joined parts must not meet.
        """
        if self._run is None or self._broken:
            return
        with self._guard("log"):
            values = numbers_of(record) | (self._tally.after(record) if self._tally else {})
            step = {"step": record.round} if self._is_offline else {}
            with_table = bool(record.clients) and self._carries_table(record.round)
            if self._is_offline and not (mark := Path(self._run.dir).parent / FIRST_ROUND).exists():
                mark.write_text(str(record.round), encoding="utf-8")
            try:
                self._run.log({**values, "clients": _client_table(record.clients)} if with_table else values, **step)
            except Exception as error:
                if not with_table:
                    raise
                # Online a table asks the server before anything is logged: without an answer the numbers still go.
                log.warning("W&B takes no table of the clients, which clients.jsonl holds: %s", error)
                self._run.log(values, **step)

    def finish(self, exit_code: int) -> None:
        """Close the run, also after an error in the run or in the mirror."""
        run, self._run = self._run, None
        if run is not None:
            with self._guard("finish"):
                run.finish(exit_code=exit_code)
        for name in self._variables:
            os.environ.pop(name, None)

    def state(self) -> dict[str, str | None]:
        """Return the id under which the run goes on after a resume."""
        return {"run_id": self._run_id}

    def _open(self, folder: Path, config: Mapping[str, Any], choices: Mapping[str, str]) -> Any:
        import wandb

        settings = wandb.Settings(
            silent=True, console="off", init_timeout=self.init_timeout, finish_timeout=self.finish_timeout
        )
        arguments = {
            "project": self.project,
            "entity": self.entity,
            "id": self._run_id,
            "dir": str(folder),
            "config": {**config, **chosen(config, choices)},
            "reinit": "finish_previous",
            "settings": settings,
            **run_labels(config, choices),
        }
        reason = "as asked" if self.mode == "offline" else service_problem(min(self.init_timeout, 3.0))
        if not reason:
            try:
                return wandb.init(mode="online", resume="allow", **arguments)
            except Exception as error:
                reason = str(error).partition("\n")[0]
                wandb.teardown()  # the service process still holds the id of the run that did not start
        run = wandb.init(mode="offline", **arguments)
        self._is_offline = True
        log.warning("W&B is offline (%s); upload later with make sync, or: wandb sync %s", reason, folder / PARTS)
        return run

    def _carries_table(self, round: int) -> bool:
        every = self.client_table_every
        return round == self._rounds or (every > 0 and round > 0 and round % every == 0)

    @contextlib.contextmanager
    def _guard(self, action: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if not self._broken:
                log.warning(
                    "W&B stops mirroring this run, which goes on: %s: %s: %s", action, type(error).__name__, error
                )
            self._broken = True


def _client_table(rows: Sequence[Mapping[str, Any]]) -> Any:
    import wandb

    columns: list[str | int] = list(dict.fromkeys(key for row in rows for key in row))
    return wandb.Table(columns=columns, data=[[row.get(str(column)) for column in columns] for row in rows])
