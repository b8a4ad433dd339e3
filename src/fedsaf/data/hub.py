"""Image sets of the Hugging Face hub by name, with every way to have them without a network."""

from __future__ import annotations

from dataclasses import dataclass

from fedsaf.data.columns import TableSource
from fedsaf.data.images import RawImages
from fedsaf.data.named import named_parts
from fedsaf.data.parquet import parquet_parts


@dataclass(frozen=True, kw_only=True)
class HubImages(TableSource):
    """A data set by name: ``path``, else ``$DATA_ROOT/<name>/*.parquet``, else the hub's cache, else the hub.

    Attributes:
        name: name in records, and of the folder below ``$DATA_ROOT``.
        hub_id: ``owner/name`` on the hub; None where no copy is known that loads by its name.
    """

    name: str
    hub_id: str | None

    def read(self, seed: int) -> RawImages:
        """Read from the first place that has it.

        Raises:
            ValueError: no place has it; names the ways to provide it, within seconds.
        """
        return self.raw_images(self.name, named_parts(self.name, self.hub_id, self.path, self.splits, parquet_parts))
