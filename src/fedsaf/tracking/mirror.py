"""The mirror of a run in Weights & Biases: it follows the records, and the run never depends on it.

``wandb`` is imported when a :class:`WandbTracker` starts. No exception leaves a tracker: a mirror that fails says so
once and stays silent, and the run goes on.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsaf.core.checks import one_of, positive
from fedsaf.core.config import flatten
from fedsaf.core.identity import cell_hash
from fedsaf.core.types import RoundRecord
from fedsaf.tracking.closing import MIB, telling_choices
from fedsaf.tracking.recorder import METRICS, read_rows
from fedsaf.tracking.summary import Scores
from fedsaf.tracking.upload import FIRST_ROUND, PARTS, service_problem

log = logging.getLogger(__name__)

MODES = ("auto", "online", "offline", "disabled")
UNNAMED = ("logger", "fabric")
"""Groups that say how a run is made, not which experiment it is; nor do those that follow from others."""
MAX_NAME, MAX_TAG = 128, 64
"""Longest run name, group and tag that W&B accepts."""


class Tracker:
    """Mirrors nothing, and is what a mirror has: ``start`` once, ``log`` per round, ``finish`` always. None raises."""

    def start(self, folder: Path, config: Mapping[str, Any], choices: Mapping[str, str], run_id: str | None) -> None:
        """Open the mirror of a run, on rank zero alone; ``run_id`` is `state` as the last checkpoint has it, if any."""

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
    Clients stand in a table, and never get metric names of their own. The arguments are explained in
    ``conf/logger/wandb.yaml``.

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
        self.project, self.entity, self.mode = project, entity, one_of("logger.mode (or WANDB_MODE)", mode, MODES)
        positive(init_timeout=init_timeout, finish_timeout=finish_timeout)
        self.init_timeout, self.finish_timeout = init_timeout, finish_timeout
        self.client_table_every = client_table_every
        self._run: Any = None
        self._run_id: str | None = None
        self._rounds, self._tally = 0, Tally(None, ())
        self._broken = self._is_offline = False
        self._variables: list[str] = []

    def start(self, folder: Path, config: Mapping[str, Any], choices: Mapping[str, str], run_id: str | None) -> None:
        """Open the run; go offline if there is no key, if the key is refused or if nobody answers in time."""
        if self.mode == "disabled":
            return
        self._run_id = run_id or secrets.token_hex(4)
        self._rounds = config["rounds"]
        with self._guard("start"):
            self._tally = Tally((config.get("method") or {}).get("predictor"), read_rows(folder / METRICS))
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
            values = numbers_of(record) | self._tally.after(record)
            step = {"step": record.round} if self._is_offline else {}
            every = self.client_table_every
            is_due = record.round == self._rounds or (every > 0 and record.round > 0 and record.round % every == 0)
            with_table = bool(record.clients) and is_due
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
        """Return the id of the run."""
        return {"run_id": self._run_id}

    def _open(self, folder: Path, config: Mapping[str, Any], choices: Mapping[str, str]) -> Any:
        import wandb

        settings = wandb.Settings(silent=True, console="off", init_timeout=self.init_timeout)
        settings.finish_timeout = self.finish_timeout
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

    @contextlib.contextmanager
    def _guard(self, action: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if not self._broken:
                reason = f"{action}: {type(error).__name__}: {error}"
                log.warning("W&B stops mirroring this run, which goes on: %s", reason)
            self._broken = True


def _client_table(rows: Sequence[Mapping[str, Any]]) -> Any:
    import wandb

    columns: list[str | int] = list(dict.fromkeys(key for row in rows for key in row))
    return wandb.Table(columns=columns, data=[[row.get(str(column)) for column in columns] for row in rows])


class Tally:
    """What comparing runs of different methods needs and no single round holds.

    Args:
        predictor: the prediction rule by which the method is scored in its own paper; None reports no accuracy.
        rows: rows of ``metrics.jsonl`` that were recorded before this process.
    """

    def __init__(self, predictor: str | None, rows: Iterable[Mapping[str, Any]]) -> None:
        self._predictor, self._scores, self._bytes = predictor, Scores(), 0
        for row in rows:
            self._add(row)

    def _add(self, row: Mapping[str, Any]) -> None:
        self._scores.add(row)
        self._bytes += sum((row.get(way) or {}).get("total", 0) for way in ("upload_bytes", "download_bytes"))

    def after(self, record: RoundRecord) -> dict[str, float]:
        """Return ``reported/pooled``, the best of it so far, and the MiB that all rounds sent up and down."""
        self._add({**record.metrics, "round": record.round})
        values: dict[str, float] = {"reported/sent_mib": self._bytes / MIB}
        if self._predictor in self._scores.last:
            last, best = self._scores.last[self._predictor], self._scores.best[self._predictor]
            values["reported/best"] = best["pooled"]
            if last["round"] == record.round:
                values["reported/pooled"] = last["pooled"]
        return values


def chosen(config: Mapping[str, Any], choices: Mapping[str, str]) -> dict[str, str]:
    """Return the choices under names of their own, without nesting, since views filter by them: ``chosen_dataset``."""
    return {f"chosen_{group}": choice for group, choice in _shown(config, choices).items()}


def run_labels(config: Mapping[str, Any], choices: Mapping[str, str]) -> dict[str, Any]:
    """Return group, job type, tags and name of a run.

    A group is a cell, so it is the same for all seeds, also if different experiments started them, and another for
    every other configuration. Which experiment, paper or setting started a run is a tag.
    """
    shown = _shown(config, choices)
    method, marks = config.get("method") or {}, {name: config.get(name) for name in ("scale", "stand_in_for")}
    parts = ["method", *method.get("reads", ()), "dataset", "partition", "model_group"]
    readable = "-".join(str(part) for part in (*(shown.get(part) for part in parts), *marks.values()) if part)
    digits, end = cell_hash(config)[:8], f"-seed{config.get('seed')}"
    tags = {**shown, **{name: value for name, value in marks.items() if value}}
    return {
        "group": f"{readable[: MAX_NAME - 9]}-{digits}",
        "job_type": shown.get("method", "train")[:MAX_TAG],
        "tags": [f"{name}={value}"[:MAX_TAG] for name, value in tags.items()],
        "name": f"{readable[: MAX_NAME - 9 - len(end)]}-{digits}{end}",
    }


def _shown(config: Mapping[str, Any], choices: Mapping[str, str]) -> dict[str, str]:
    return {group: choice for group, choice in telling_choices(config, choices).items() if group not in UNNAMED}


def numbers_of(record: RoundRecord) -> dict[str, float]:
    """Return the numbers of a round under names joined by ``/``; lists count, and what is None has no name."""
    values = flatten({**record.metrics, "seconds": record.timing, "round": record.round}, separator="/")
    counted = {key: len(value) if isinstance(value, list | tuple) else value for key, value in values}
    return {key: value for key, value in counted.items() if isinstance(value, int | float)}
