"""Files that lie in one folder per class, with or without a folder per official part above."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from fedsaf.data.images import ImageSource, ListedItems, RawImages
from fedsaf.data.sources.tables import part_of, pooled_order
from fedsaf.data.sources.text_files import utf8
from fedsaf.data.texts import RawTexts, TextSource

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

    def read(self, seed: int) -> RawImages:
        """List image files; files of other kinds and hidden ones are skipped with a count.

        Raises:
            ValueError: no such folder, no image in it, an image outside a class folder, or an unknown part.
        """
        root, found = class_files(self.path, _readable_suffixes(), self.splits, "image")
        parts = Counter(part for part, _, _ in found)
        return RawImages(
            name=root.resolve().name,
            items=ListedItems([file for _, _, file in found], [str(file) for _, _, file in found]),
            labels=[label for _, label, _ in found],
            parts=dict(parts),
        )


@dataclass(frozen=True, kw_only=True)
class TextFolder(TextSource):
    """A user's own texts as ``path/<class>/*.txt`` or ``path/<part>/<class>/*.txt``, part being train, val or test.

    Attributes:
        path: the folder.
        splits: official parts to pool, in this order; None takes all.
    """

    path: str | None
    splits: Sequence[str] | None

    def read(self, seed: int) -> RawTexts:
        """Read the .txt files, one text each; files of other kinds and hidden ones are skipped with a count.

        Raises:
            ValueError: no such folder, no text in it, a text outside a class folder, an unknown part, or a file that
                is not UTF-8.
        """
        root, found = class_files(self.path, {".txt"}, self.splits, "text")
        return RawTexts(
            name=root.resolve().name,
            texts=[utf8(file) for _, _, file in found],
            labels=[label for _, label, _ in found],
            parts=dict(Counter(part for part, _, _ in found)),
        )


def class_files(
    path: str | None, suffixes: Collection[str], splits: Sequence[str] | None, kind: str
) -> tuple[Path, list[tuple[str, str, Path]]]:
    """List the files of ``path/<class>/...`` or ``path/<part>/<class>/...``, part being train, val or test.

    Files of other kinds are skipped with a count, hidden ones in silence.

    Args:
        path: the folder.
        suffixes: endings of the wanted files, in lower case, with the dot.
        splits: official parts to pool, in this order; None takes all.
        kind: what the files are called in messages, such as image.

    Returns:
        The folder, and (part, class, file) in pooled order: part, then path.

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
        part = part_of(folders[0]) if in_parts else "all"
        rows.append((part, folders[in_parts], file))
    return root, [row for _, row in pooled_order([(row[0], row) for row in rows], splits, str(root))]


def _hidden(relative: Path) -> bool:
    return any(part.startswith((".", "__MACOSX")) for part in relative.parts)


def _readable_suffixes() -> set[str]:
    return {suffix for suffix, kind in Image.registered_extensions().items() if kind in Image.OPEN}
