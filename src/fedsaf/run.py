"""One job: find its folder, decide whether to skip, resume or start, assemble the parts, run, and close the records."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import BaseFileLock, FileLock, Timeout
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from fedsaf.cli import chosen_groups
from fedsaf.core.config import ConfigError, check, resolved
from fedsaf.core.files import read_json, remove_leftovers
from fedsaf.core.fingerprints import Data, changes_since
from fedsaf.core.identity import config_hash, lock_path, run_folder
from fedsaf.federation.interrupt import EXIT_AGAIN, Interrupted
from fedsaf.tracking.closing import run_table, wide_console
from fedsaf.tracking.recorder import STATUS, SUMMARY, Recorder

if TYPE_CHECKING:
    from fedsaf.assembly import Origin
    from fedsaf.federation.job import Job

log = logging.getLogger("fedsaf")


def run(config: DictConfig) -> dict[str, str]:
    """Run the job that this configuration describes, unless its folder says that it is finished.

    Returns:
        ``folder`` and ``outcome``: finished, resumed or skipped.

    Raises:
        SystemExit: with status 75 if the run was interrupted and the same command continues it. In a single run also
            with status 1 for a refused configuration or unusable data, after one line that says why.
        ConfigError: the same in a sweep, which can go on and list it.
    """
    single = HydraConfig.get().mode == RunMode.RUN
    try:
        return _run(config)
    except ConfigError as error:
        if not single:
            raise
        sys.exit(f"error: {error}")


def _run(config: DictConfig) -> dict[str, str]:
    hydra = HydraConfig.get()
    choices = {k: v for k, v in hydra.runtime.choices.items() if isinstance(v, str) and "/" not in k}
    words = list(hydra.overrides.task)
    plain = resolved(config)
    check(plain, chosen_groups(words, choices))
    if plain["seed"] is None:
        if not single_process():
            raise ConfigError("seed is null, but every rank is a process of its own here; write a seed")
        plain["seed"] = secrets.randbelow(2**31)
        log.info("seed=null: drew seed=%d", plain["seed"])
    folder = run_folder(plain, choices)
    with _lock(folder) if writes() else nullcontext():
        if _is_finished(folder, config_hash(plain)) and not plain["force"]:
            log.info("%s is finished already; force=true runs it anew", folder)
            if writes():
                if changed := _changed(folder, plain):
                    log.warning("warning: %s changed since this run was made; force=true runs it anew", changed)
                _show(folder)
            return {"folder": str(folder), "outcome": "skipped"}
        from fedsaf.assembly import Origin

        return _execute(Origin(plain, choices, words, config_hash(plain), folder))


def _is_finished(folder: Path, expected: str) -> bool:
    """Return whether the folder holds the result of this configuration, and refuse that of another.

    A damaged status or summary is no result.
    """
    try:
        status, summary = read_json(folder / STATUS) or {}, read_json(folder / SUMMARY)
    except ValueError:
        return False
    if status.get("state") != "finished" or summary is None:
        return False
    if summary.get("config_hash") != expected:
        raise ConfigError(
            f"{folder} holds the result of another configuration ({summary.get('config_hash')}, expected {expected}); "
            "give this run another results_root, or force=true to replace it"
        )
    return True


def _changed(folder: Path, config: Mapping[str, Any], data: Data | None = None) -> str:
    """Return in words what is no longer as it was when a run was made; log what is not either, but may not matter."""

    def load() -> Data:
        from fedsaf.assembly import samples

        return data or samples(config)

    found = changes_since(folder, config, load)
    for note in found.notes:
        log.info("note: %s", note)
    return " and ".join(found.parts)


def _execute(origin: Origin) -> dict[str, str]:
    """Assemble and run; from here on torch is needed."""
    from fedsaf.assembly import assemble, show_partition
    from fedsaf.federation.job import perform
    from fedsaf.federation.launch import launch
    from fedsaf.federation.store import drop_scratch

    try:
        job, folder = assemble(origin), origin.folder
    except (ValueError, OSError) as error:
        raise ConfigError(str(error)) from error
    if not writes():
        launch(job.fabric, perform, job)
        return {"folder": str(folder), "outcome": "finished"}
    if origin.config["force"] and folder.exists():
        shutil.rmtree(folder)
    if job.checkpoint.folder.exists() and (changed := _changed(folder, origin.config, job.data.dataset)):
        raise ConfigError(
            f"{changed} changed since {folder} was begun; give this run another results_root, or force=true to start "
            "it anew"
        )
    restored = _usable_checkpoint(job)
    log.info("%s %s", f"resuming after round {restored}:" if restored is not None else "starting", folder)
    show_partition(job.data)
    origin.write(job)
    drop_scratch(folder)
    remove_leftovers(folder)
    _launch(job, Recorder(folder))
    _show(folder)
    return {"folder": str(folder), "outcome": "finished" if restored is None else "resumed"}


def _usable_checkpoint(job: Job) -> int | None:
    """Return the round of the checkpoint, None if there is none; refuse one that cannot be used before any training."""
    from fedsaf.federation.checkpoint import CheckpointError

    try:
        restored = job.checkpoint.load(job.identity)
    except CheckpointError as error:
        raise ConfigError(str(error)) from error
    if restored is None:
        return None
    try:
        Recorder(job.outputs.folder).check(restored.round)
    except ValueError as error:
        raise ConfigError(f"{error} force=true starts the run anew") from error
    for problem in restored.problems:
        log.warning("the newest checkpoint is passed over (%s); the one before it is used", problem)
    return restored.round


def _launch(job: Job, recorder: Recorder) -> None:
    """Run the job on its ranks; ``status.json`` tells at every moment how it stands."""
    from fedsaf.federation.job import perform
    from fedsaf.federation.launch import launch

    recorder.status("running")
    try:
        launch(job.fabric, perform, job)
    except (Interrupted, KeyboardInterrupt, SystemExit) as stop:
        recorder.status("interrupted", reason="asked to stop; the same command continues")
        log.info("interrupted; the same command continues after the last saved round")
        if isinstance(stop, SystemExit) and stop.code:
            raise  # submitit tells by a status of its own that the job is to be requeued
        raise SystemExit(EXIT_AGAIN) from None
    except BaseException as error:
        recorder.status("failed", reason=f"{type(error).__name__}: {error}")
        raise
    recorder.summarise(job.identity["config_hash"], job.identity["partition_hash"], job.about())
    recorder.status("finished")


def _show(folder: Path) -> None:
    """Print the result of a finished run."""
    wide_console().print(run_table(read_json(folder / SUMMARY) or {}), f"records: {folder}")


def single_process() -> bool:
    """Return whether this process is the only one of its run; torchrun and srun start one per rank."""
    return "TORCHELASTIC_RUN_ID" not in os.environ and int(os.environ.get("SLURM_NTASKS", "1")) == 1


def writes() -> bool:
    """Return whether this process decides about the run folder: the only one, or the one of rank zero."""
    return single_process() or int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0"))) == 0


def _lock(folder: Path) -> BaseFileLock:
    """Return a held lock on the run; it goes with the process, however that ends."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(lock_path(folder))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ConfigError(f"{folder} is being written by another process; wait for it, or stop it") from None
    return lock
