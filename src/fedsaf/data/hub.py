"""Named data sets of the Hugging Face hub, with every way to have them without a network."""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from fedsaf.data.columns import TablePart, TableSource
from fedsaf.data.datasets import RawImages
from fedsaf.data.parquet import parquet_parts, part_of, pooled_order

log = logging.getLogger(__name__)

_ANSWER_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class HubImages(TableSource):
    """A data set by name: ``path``, else ``$DATA_ROOT/<name>/*.parquet``, else the hub's cache, else the hub.

    Attributes:
        name: name in records, and of the folder below ``$DATA_ROOT``.
        hub_id: ``owner/name`` on the hub.
    """

    name: str
    hub_id: str

    def read(self, seed: int) -> RawImages:
        """Read from the first place that has it.

        Raises:
            ValueError: no place has it; names the three ways to provide it, within seconds.
        """
        local = self._local_path()
        return self.raw_images(self.name, parquet_parts(local, self.splits) if local else self._hub_parts())

    def _local_path(self) -> Path | None:
        if self.path is not None:
            return Path(self.path).expanduser()
        root = os.environ.get("DATA_ROOT")
        folder = Path(root).expanduser() / self.name if root else None
        return folder if folder and any(folder.glob("*.parquet")) else None

    def _hub_parts(self) -> list[TablePart]:
        import datasets  # costs a second; runs on embedded or local data do without

        datasets.disable_progress_bars()
        datasets.logging.set_verbosity_error()
        loaded = _from_cache(self.hub_id)
        if loaded is None:
            reason = _hub_refusal(self.hub_id)
            if reason is None:
                try:
                    loaded = datasets.load_dataset(self.hub_id)
                except (OSError, ValueError, RuntimeError) as error:
                    reason = str(error)
            if reason is not None:
                raise ValueError(self._how_to_provide(reason))
        named = pooled_order([(part_of(split) or split, split) for split in loaded], self.splits, self.hub_id)
        return [_part(part, split, loaded[split], self.hub_id) for part, split in named]

    def _how_to_provide(self, reason: str) -> str:
        return (
            f"dataset {self.name} is neither in the cache nor to be had from the hub as {self.hub_id} ({reason}). "
            f"Provide it in one of three ways: put its parquet files into $DATA_ROOT/{self.name}/; "
            "set dataset.path=<file or folder of parquet files>; "
            "or load it once on a machine with a network and copy its cache folder ($HF_HOME) here"
        )


def _part(part: str, split: str, dataset: Any, hub_id: str) -> TablePart:
    return TablePart(part, f"{hub_id} {split}", None, dataset.features, partial(_read, dataset))


def _read(dataset: Any, columns: list[str]) -> pa.Table:
    return dataset.select_columns(columns).with_format("arrow")[:]


def _from_cache(hub_id: str) -> Any | None:
    """Return the prepared data set of the cache, or None; the hub is not asked.

    ``load_dataset`` asks the hub first and retries for about 25 seconds without a network.
    """
    from datasets.packaged_modules.cache.cache import Cache

    try:
        builder = Cache(repo_id=hub_id, dataset_name=hub_id.split("/")[-1], version="auto", hash="auto")
        return builder.as_dataset()
    except (ValueError, OSError) as error:
        log.debug("no cache of %s: %s", hub_id, error)
        return None


def _hub_refusal(hub_id: str) -> str | None:
    """Ask the hub once for the data set; return why it cannot be had, or None.

    In a thread of its own, because looking up a host name knows no time limit.
    """
    from huggingface_hub import HfApi

    answer = ["no answer in time"]

    def ask() -> None:
        try:
            HfApi().dataset_info(hub_id, timeout=_ANSWER_SECONDS)
            answer[0] = ""
        except Exception as error:  # whatever the client library raises is the reason to show
            answer[0] = f"{type(error).__name__}: {error}".split("\n")[0]

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_ANSWER_SECONDS)
    return answer[0] or None
