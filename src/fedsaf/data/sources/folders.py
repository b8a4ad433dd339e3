"""Files that lie in one folder per class, with or without a folder per official part above."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from fedsaf.data.images import ImageItems, ImageSource
from fedsaf.data.raw import Items, RawSamples
from fedsaf.data.sources.table_files import part_of, pooled_order, utf8
from fedsaf.data.texts import TextSource

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ImageFolder(ImageSource):
    """A user's own images as ``path/<class>/...`` or ``path/<part>/<class>/...``, part being train, val or test.

    Attributes:
        path: the folder.
        splits: official parts to pool, in this order; None takes all.
    """

    path: str | None
    splits: Sequence[str] | None

    def read(self, seed: int) -> RawSamples[ImageItems]:
        """List the files that Pillow can open; they are read when they are decoded."""
        readable = {suffix for suffix, kind in Image.registered_extensions().items() if kind in Image.OPEN}
        return _by_class(self.path, self.splits, readable, self.kind, ImageItems.of)


@dataclass(frozen=True, kw_only=True)
class TextFolder(TextSource):
    """A user's own texts as ``path/<class>/*.txt`` or ``path/<part>/<class>/*.txt``, part being train, val or test.

    Attributes:
        path: the folder.
        splits: official parts to pool, in this order; None takes all.
    """

    path: str | None
    splits: Sequence[str] | None

    def read(self, seed: int) -> RawSamples[Sequence[str]]:
        """Read the .txt files, one text each, in UTF-8."""
        return _by_class(self.path, self.splits, {".txt"}, self.kind, lambda files: list(map(utf8, files)))


def _by_class(
    path: str | None,
    splits: Sequence[str] | None,
    suffixes: Collection[str],
    kind: str,
    items: Callable[[list[Path]], Items],
) -> RawSamples[Items]:
    """Pool the files of a folder, after which the set is called, by part, then path; ``items`` makes samples of them.

    Files with other suffixes than the wanted ones (in lower case) are skipped with a count, hidden ones in silence.

    Raises:
        ValueError: no such folder, no such file in it, a file outside a class folder, or an unknown part.
    """
    if path is None or not Path(path).expanduser().is_dir():
        came = "null" if path is None else f"{str(path)!r} is not a folder"
        raise ValueError(f"dataset.path={came}: name a folder with a subfolder per class")
    root = Path(path).expanduser()
    files = sorted(f for f in root.rglob("*") if f.is_file() and not _hidden(f.relative_to(root)))
    wanted = [file for file in files if file.suffix.lower() in suffixes]
    if len(wanted) < len(files):
        log.info("dataset.path=%s: %d files that are no %ss are skipped", root, len(files) - len(wanted), kind)
    if not wanted:
        ending = f" that ends in {min(suffixes)}" if len(suffixes) == 1 else ""
        raise ValueError(f"dataset.path={str(root)!r} holds no {kind}{ending} (of {len(files)} files)")
    tops = {file.relative_to(root).parts[0] for file in wanted}
    in_parts = all(part_of(top) and (root / top).is_dir() for top in tops)
    if splits is not None and not in_parts:
        raise ValueError(f"dataset.splits={list(splits)}: {root} has no part folders, only {sorted(tops)[:10]}")
    rows = []
    for file in wanted:
        folders = file.relative_to(root).parts[:-1]
        if len(folders) <= in_parts:
            raise ValueError(f"labels missing: {kind} {file} lies in no class folder")
        rows.append(((part_of(folders[0]) if in_parts else None) or "all", file))
    rows = pooled_order(rows, splits, str(root))
    pooled = [file for _, file in rows]
    return RawSamples(
        name=root.resolve().name,
        items=items(pooled),
        labels=[file.relative_to(root).parts[in_parts] for file in pooled],
        parts=dict(Counter(part for part, _ in rows)),
        files=pooled,
    )


def _hidden(relative: Path) -> bool:
    return any(part.startswith((".", "__MACOSX")) for part in relative.parts)
