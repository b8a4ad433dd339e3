"""Files that lie in one folder per class, with or without a folder per official part above."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from pathlib import Path

from fedsaf.data.parquet import part_of, pooled_order

log = logging.getLogger(__name__)


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
