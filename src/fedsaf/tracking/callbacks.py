"""The Hydra callback that closes a sweep with a table of what ran, what was skipped and what failed."""

from __future__ import annotations

import atexit
import json
import logging
import os
import shutil
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from fedsaf.core.config import ConfigError, plain, resolved
from fedsaf.core.files import write_atomically
from fedsaf.core.identity import cell_hash
from fedsaf.tracking.closing import Run, closing_table, failures, read_run, wide_console

log = logging.getLogger(__name__)

UNFINISHED = "unfinished"
POLL_SECONDS = 0.5


class ClosingTable(Callback):
    """Notes the outcome of each job at once, and prints one line per cell when the sweep is over.

    The task function returns ``{"folder": run folder, "outcome": "finished" | "resumed" | "skipped" | ...}``. Outcomes
    pass through files in the sweep folder, since a launcher may run jobs in other processes; these learn the name of
    the files from their copy of the callback, and two sweeps at once do not meet. Hydra skips ``on_multirun_end`` when
    a job failed, so the table is printed at the end of the process then. A job that was killed could note nothing: the
    note of its start is left. Launchers give up at once then, so the table waits for the other jobs on this machine.

    ``predictors`` have one table each; ``measure`` is pooled or client_mean.
    """

    def __init__(self, predictors: list[str], measure: str) -> None:
        self.predictors = list(predictors)
        self.measure = measure
        self._outcomes: Path | None = None

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Make a place for the outcomes of this sweep; see that the table is printed whatever happens."""
        folder = Path(config.hydra.sweep.dir).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        self._outcomes = Path(tempfile.mkdtemp(prefix=".outcomes-", dir=folder))
        atexit.register(self._print_table)

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Note that a job of a sweep has begun, and who works on it."""
        if self._outcomes is not None:
            task = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
            self._write(config, task, outcome=UNFINISHED, folder=None, reason="killed, or asked to stop")

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """Note how a job of a sweep ended; a failure goes to the job's own log at once, or ends all by request.

        Raises:
            SystemExit: after a failure with ``stop_on_failure``; Hydra lets nothing else out of a callback.
        """
        if self._outcomes is None:
            return
        result = job_return._return_value  # the property would print and raise the exception of a failed job
        failed = job_return.status == JobStatus.FAILED
        if failed:
            trace = None if isinstance(result, ConfigError) else result  # whose one line says all
            log.error("job %s failed: %s", config.hydra.job.num, result, exc_info=trace)
        self._write(
            config,
            job_return.cfg,
            outcome="failed" if failed else result["outcome"],
            folder=None if failed else str(result["folder"]),
            reason=f"{type(result).__name__}: {result}".partition("\n")[0] if failed else "",
        )
        if failed and config.stop_on_failure:
            raise SystemExit(1)

    def _write(self, config: DictConfig, task: Any, **note: Any) -> None:
        """Write or replace the note of one job; what follows from its choices is in the hash, and names no cell."""
        content = plain(task, resolve=False)
        try:
            note["cell"] = cell_hash(resolved(task))
        except ConfigError:
            note["cell"] = cell_hash(content)
        choices = plain(config.hydra.runtime.choices)
        content["choices"] = {key: value for key, value in choices.items() if not key.startswith("hydra/")}
        content["overrides"] = list(config.hydra.overrides.task)
        note |= {"config": content, "pid": os.getpid(), "host": socket.gethostname()}
        assert self._outcomes is not None  # set when the sweep began
        write_atomically(self._outcomes / f"{int(config.hydra.job.num):06d}.json", json.dumps(note, default=str))

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Print the table of a sweep whose jobs all returned."""
        atexit.unregister(self._print_table)
        self._print_table()

    def _print_table(self) -> None:
        assert self._outcomes is not None  # set when the sweep began
        while any(_is_working(note) for note in _notes(self._outcomes)):
            time.sleep(POLL_SECONDS)
        runs = []
        for note in _notes(self._outcomes):
            summary = read_run(Path(note["folder"])).summary if note["folder"] else None
            runs.append(Run(note["config"], note["outcome"], summary, note["reason"], note["cell"]))
        shutil.rmtree(self._outcomes)
        console = wide_console()
        for predictor in self.predictors:
            if any(run.summary and run.summary.get(predictor) for run in runs) or predictor == self.predictors[0]:
                console.print(closing_table(runs, predictor, self.measure))
        for line in failures(runs):
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def _notes(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def _is_working(note: dict[str, Any]) -> bool:
    """Return whether another process of this machine still works on a job."""
    if note["outcome"] != UNFINISHED or note["host"] != socket.gethostname() or note["pid"] == os.getpid():
        return False
    try:
        return psutil.Process(note["pid"]).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
