"""Sets by name: every place where one may lie, looked at in turn, and what to do if none has it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fedsaf.data.sources.table_files import BATCH_ROWS, SUFFIXES, TablePart, part_of, picked, pooled_order, table_parts

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

log = logging.getLogger(__name__)

_ANSWER_SECONDS = 2.0


def named_parts(
    name: str, hub_id: str | None, path: str | None, splits: Sequence[str] | None, suffixes: Sequence[str] = SUFFIXES
) -> list[TablePart]:
    """List the parts of a set by name: ``path``, else ``$DATA_ROOT/<name>``, else the hub's cache, else the hub.

    If no place has it, a ValueError names the ways to provide it, within seconds.
    """
    local = local_place(name, path)
    if local is not None:
        return table_parts(local, splits, suffixes)
    if hub_id is None:
        raise ValueError(
            f"dataset {name} is not on this machine, and no copy on the hub is known that loads by its name. "
            f"Provide it in one of three ways: put its parquet files into $DATA_ROOT/{name}/; "
            "set dataset.path=<file or folder>; or name a copy of yours, dataset.hub_id=<owner/name>"
        )
    loaded = _from_cache(hub_id) or _from_hub(name, hub_id)
    found = [(part_of(split) or split, split) for split in loaded]
    return [_hub_part(part, split, loaded[split], hub_id) for part, split in pooled_order(found, splits, hub_id)]


def local_place(name: str, path: str | None) -> Path | None:
    """Return ``path``, else ``$DATA_ROOT/<name>`` if that folder holds a parquet file, else None."""
    if path is not None:
        return Path(path).expanduser()
    root = os.environ.get("DATA_ROOT")
    folder = Path(root).expanduser() / name if root else None
    return folder if folder and any(folder.glob("*.parquet")) else None


def _hub_part(part: str, split: str, dataset: Dataset, hub_id: str) -> TablePart:
    """Return a split of the hub's cache, whose files are mapped into memory."""

    def read(columns: list[str]) -> pa.Table:
        return dataset.select_columns(columns).with_format("arrow")[:]

    def stream(column: str, rows: np.ndarray) -> Iterator[Any]:
        return picked(dataset.select_columns([column]).with_format("arrow").iter(BATCH_ROWS), rows)

    files = [Path(file["filename"]) for file in dataset.cache_files]
    return TablePart(part, f"{hub_id} {split}", files, dataset.features, read, stream)


def _from_cache(hub_id: str) -> DatasetDict | None:
    """Return the prepared data set of the cache, or None; the hub is not asked.

    ``load_dataset`` asks the hub first and retries for about 25 seconds without a network.
    """
    import datasets  # costs a second; runs on embedded or local data do without
    from datasets.packaged_modules.cache.cache import Cache

    datasets.disable_progress_bars()
    datasets.logging.set_verbosity_error()
    try:
        return Cache(repo_id=hub_id, dataset_name=hub_id.split("/")[-1], version="auto", hash="auto").as_dataset()
    except (ValueError, OSError) as error:
        log.debug("no cache of %s: %s", hub_id, error)
        return None


def _from_hub(name: str, hub_id: str) -> DatasetDict:
    import datasets

    reason = _hub_refusal(hub_id)
    if reason is None:
        log.info("dataset %s: %s is loaded from the hub into its cache", name, hub_id)
        try:
            return datasets.load_dataset(hub_id)
        except (OSError, ValueError, RuntimeError) as error:
            reason = str(error)
    raise ValueError(
        f"dataset {name} is neither in the cache nor to be had from the hub as {hub_id} ({reason}). "
        f"Provide it in one of three ways: put its parquet files into $DATA_ROOT/{name}/; "
        "set dataset.path=<file or folder of parquet files>; "
        "or load it once on a machine with a network and copy its cache folder ($HF_HOME) here"
    )


def _hub_refusal(hub_id: str) -> str | None:
    """Ask the hub once for the data set; return why it cannot be had, or None.

    In a thread of its own, because looking up a host name knows no time limit.
    """
    from huggingface_hub import HfApi

    answer: list[str | None] = ["no answer in time"]

    def ask() -> None:
        try:
            HfApi().dataset_info(hub_id, timeout=_ANSWER_SECONDS)
            answer[0] = None
        except Exception as error:  # whatever the client library raises is the reason to show
            answer[0] = f"{type(error).__name__}: {error}".split("\n")[0]

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_ANSWER_SECONDS)
    return answer[0]
