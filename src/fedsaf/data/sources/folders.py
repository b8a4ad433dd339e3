"""Files that lie in one folder per class, with or without a folder per official part above."""

from __future__ import annotations

import logging
import os
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

    ``splits`` are the official parts to pool, in this order; None takes all.
    """

    path: str | None
    splits: Sequence[str] | None

    def read(self, seed: int) -> RawSamples[ImageItems]:
        """List the files that Pillow can open; they are read when they are decoded."""
        readable = {suffix for suffix, kind in Image.registered_extensions().items() if kind in Image.OPEN}
        return _by_class(self.path, self.splits, readable, self.kind, ImageItems.of)


@dataclass(frozen=True, kw_only=True)
class TextFolder(TextSource):
    """A user's own texts as ``path/<class>/*.txt`` or ``path/<part>/<class>/*.txt``; see `ImageFolder`."""

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

    Files with other suffixes than the wanted ones (in lower case) are skipped with a count, hidden ones in silence, and
    folders beside those of two official parts or more by name.

    Raises:
        ValueError: no such folder, no such file in it, a file outside a class folder, or an unknown part.
    """
    if path is None or not Path(path).expanduser().is_dir():
        came = "null" if path is None else f"{str(path)!r} is not a folder"
        raise ValueError(f"dataset.path={came}: name a folder with a subfolder per class")
    root = Path(path).expanduser()
    files = _files_below(root)
    wanted = [file.relative_to(root) for file in files if file.suffix.lower() in suffixes]
    if len(wanted) < len(files):
        log.info("dataset.path=%s: %d files that are no %ss are skipped", root, len(files) - len(wanted), kind)
    if not wanted:
        ending = f" that ends in {min(suffixes)}" if len(suffixes) == 1 else ""
        raise ValueError(f"dataset.path={str(root)!r} holds no {kind}{ending} (of {len(files)} files)")
    tops = {file.parts[0] for file in wanted if len(file.parts) > 1}
    official = {top: part for top in tops if (part := part_of(top))}
    in_parts = bool(official) and (len(official) == len(tops) or _hold_classes(wanted, official))
    if splits is not None and not in_parts:
        raise ValueError(f"dataset.splits={list(splits)}: {root} has no part folders, only {sorted(tops)[:10]}")
    if in_parts and (stray := sorted(tops.difference(official))):
        log.warning("dataset.path=%s: %s stand beside the parts and are left out", root, ", ".join(stray))
        wanted = [file for file in wanted if file.parts[0] not in stray]
    for file in wanted:
        if len(file.parts) <= 1 + in_parts:
            raise ValueError(f"labels missing: {kind} {root / file} lies in no class folder")
    rows = pooled_order([(official[file.parts[0]] if in_parts else "all", file) for file in wanted], splits, str(root))
    pooled = [root / file for _, file in rows]
    return RawSamples(
        name=root.resolve().name,
        items=items(pooled),
        labels=[file.parts[in_parts] for _, file in rows],
        parts=dict(Counter(part for part, _ in rows)),
        files=pooled,
    )


def _hold_classes(files: Sequence[Path], official: dict[str, str]) -> bool:
    """Return whether folders named like parts are parts, though others stand beside them: two or more, with classes."""
    inside = [file for file in files if file.parts[0] in official]
    return len(set(official.values())) > 1 and all(len(file.parts) > 2 for file in inside)


def _files_below(root: Path) -> list[Path]:
    """List all files in the order of their paths, hidden ones left out.

    Links are followed. Those that lead nowhere, or into a folder above, are named in a warning and skipped.
    """
    found, bad = [], []
    for name, folders, files in os.walk(root, followlinks=True):
        here = Path(name)
        above = {each.resolve() for each in (here, *here.parents) if each.is_relative_to(root)}
        bad += [here / each for each in folders if (here / each).resolve() in above]
        folders[:] = [each for each in folders if not _hidden(each) and here / each not in bad]
        paths = [here / each for each in files if not _hidden(each)]
        bad += [file for file in paths if not file.exists()]
        found += [file for file in paths if file.is_file()]
    if bad:
        log.warning(
            "dataset.path=%s: %d links lead nowhere or back and are skipped, such as %s", root, len(bad), bad[0]
        )
    return sorted(found)


def _hidden(name: str) -> bool:
    return name.startswith((".", "__MACOSX"))
