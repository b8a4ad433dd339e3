"""The run folder is the truth: one line per round, per client and round, and per round of wall-clock time.

``metrics.jsonl`` and ``clients.jsonl`` hold only what follows from the configuration, so a killed and resumed run
writes the same bytes as an uninterrupted one; what the clock and the machine decide is kept apart in ``timing.jsonl``.
"""

from __future__ import annotations

import json
import math
import os
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedsaf.core.checks import one_of
from fedsaf.core.files import read_json, write_atomically
from fedsaf.core.types import RoundRecord
from fedsaf.tracking.summary import client_domains, domain_accuracies, predictors, summarise_rows

METRICS, CLIENTS, TIMING = "metrics.jsonl", "clients.jsonl", "timing.jsonl"
SUMMARY, STATUS, PARTITION = "summary.json", "status.json", "partition.json"
STATES = ("running", "finished", "failed", "interrupted")


class Recorder:
    """Appends rounds to a run folder, and cuts them back to a checkpoint when a run is resumed.

    Rounds are recorded without gaps, starting with 0 (before training) or 1. A folder that already holds rounds is
    read-only until :meth:`truncate` has said where to go on, so that no round is ever recorded twice. The folder is
    created with the first write.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        metrics = self.folder / METRICS
        self._last = None if metrics.exists() and metrics.stat().st_size else -1

    def append(self, record: RoundRecord) -> None:
        """Write one round and flush it to disk.

        The line of the round goes last: a line in ``metrics.jsonl`` implies the rows of its clients.

        Raises:
            ValueError: a number is not finite, a value is no plain Python value, or the round does not follow the last
                one; the message names the key or the round, and nothing is written.
        """
        if self._last is None:
            raise ValueError(f"record: {self.folder} already holds rounds; truncate(last_round) first")
        expected = (0, 1) if self._last == -1 else (self._last + 1,)
        if record.round not in expected:
            raise ValueError(f"record: got round {record.round}, expected round {' or '.join(map(str, expected))}")
        if record.metrics.get("round", record.round) != record.round:
            raise ValueError(f"record: metrics say round {record.metrics['round']}, the record says {record.round}")
        lines = {
            CLIENTS: [encode({**row, "round": record.round}, f"clients[{i}]") for i, row in enumerate(record.clients)],
            TIMING: [encode({**record.timing, "round": record.round}, "timing")],
            METRICS: [encode({**record.metrics, "round": record.round}, "metrics")],
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, texts in lines.items():
            with (self.folder / name).open("a", encoding="utf-8") as file:
                file.writelines(text + "\n" for text in texts)
                file.flush()
                os.fsync(file.fileno())
        self._last = record.round

    def check(self, last_round: int) -> None:
        """Raise ValueError, naming the file, unless each is readable and holds all rounds up to ``last_round``."""
        for name in (METRICS, CLIENTS, TIMING):
            path = self.folder / name
            try:
                rounds = {row["round"] for row in read_rows(path)}
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{path} cannot be read: {error}.") from error
            missing = sorted(set(range(last_round + 1)) - rounds)
            if missing:
                raise ValueError(f"{path} lacks rounds {missing}, which the checkpoint at round {last_round} implies.")

    def truncate(self, last_round: int) -> None:
        """Keep the rounds up to and including ``last_round``, the one of the checkpoint; -1 empties the folder's rows.

        A last line torn by a kill is dropped, and so is the summary, which described other rows.

        Raises:
            ValueError: the records do not reach the checkpoint without a gap.
        """
        rounds = [row["round"] for row in self.rows() if row["round"] <= last_round]
        if last_round >= 0 and (not rounds or rounds != list(range(min(rounds[0], 1), last_round + 1))):
            raise ValueError(
                f"last_round: the checkpoint is at round {last_round}, but {self.folder / METRICS} holds rounds"
                f" {rounds or 'none'}; expected every round up to {last_round}. Use force=true to start again."
            )
        (self.folder / SUMMARY).unlink(missing_ok=True)
        for name in (METRICS, CLIENTS, TIMING):
            path = self.folder / name
            if path.exists():
                kept = (encode(row, name) + "\n" for row in read_rows(path) if row["round"] <= last_round)
                write_atomically(path, "".join(kept))
        self._last = last_round

    def rows(self) -> list[dict[str, Any]]:
        """Return the recorded rounds, oldest first; [] if there are none."""
        return read_rows(self.folder / METRICS)

    def client_rows(self) -> list[dict[str, Any]]:
        """Return the recorded rows of the clients, oldest round first; [] if there are none."""
        return read_rows(self.folder / CLIENTS)

    def status(self, state: str, **reason: Any) -> None:
        """Replace ``status.json`` by one of `STATES` and anything worth knowing: ``reason="ValueError: ..."``."""
        one_of("state", state, STATES)
        origin = {"pid": os.getpid(), "host": socket.gethostname(), "time": datetime.now(UTC).isoformat()}
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / STATUS, encode({**origin, **reason, "state": state}, STATUS, indent=2) + "\n")

    def summarise(self, config_hash: str, partition_hash: str, extra: Mapping[str, Any]) -> dict[str, Any]:
        """Write ``summary.json`` from the recorded rows alone and return it; call it before ``status("finished")``.

        Where ``partition.json`` says that clients hold different domains, ``domains`` holds the accuracies of each.

        Raises:
            ValueError: no round is recorded, or ``extra`` names an entry that comes from the rows.
        """
        summary: dict[str, Any] = {"status": "finished", "config_hash": config_hash, "partition_hash": partition_hash}
        rows = self.rows()
        summary |= summarise_rows(rows, read_rows(self.folder / TIMING))
        if domains := client_domains(read_json(self.folder / PARTITION)):
            summary["domains"] = domain_accuracies(self.client_rows(), domains, predictors(rows))
        if taken := sorted(summary.keys() & extra.keys()):
            raise ValueError(f"extra: {', '.join(taken)} come from the recorded rows; choose other names")
        summary |= extra
        write_atomically(self.folder / SUMMARY, encode(summary, SUMMARY, indent=2) + "\n")
        return summary


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read a file of one JSON object per line, [] if there is none; a last line torn by a kill is left out."""
    if not path.exists():
        return []
    complete, _, _ = path.read_bytes().rpartition(b"\n")
    return [json.loads(line) for line in complete.splitlines()]


def encode(value: Mapping[str, Any], where: str, indent: int | None = None) -> str:
    """Encode as strict JSON with sorted keys, so that equal content is equal text.

    >>> encode({"b": 1, "a": [0.5, None]}, "row")
    '{"a": [0.5, null], "b": 1}'

    Raises:
        ValueError: NaN, infinity, a key that is no string or a value that is no plain Python value, by its key in what
            is called ``where``.
    """
    _check_plain(value, where)
    return json.dumps(value, allow_nan=False, sort_keys=True, indent=indent, ensure_ascii=False)


def _check_plain(value: Any, where: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where}: got {value}, expected a finite number or None")
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise ValueError(f"{where}: got the key {key!r}, expected a string")
            _check_plain(item, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check_plain(item, f"{where}[{index}]")
    elif value is not None and not isinstance(value, str | int | float):
        raise ValueError(f"{where}: got a {type(value).__name__}, expected a plain Python value")
