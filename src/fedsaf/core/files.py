"""Files that are there whole or not at all, and JSON read back. Every file that replaces another is written here."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a file beside ``path`` to write to, which takes its place in one step when the block ends without an error.

    A reader, a kill or a power loss meets the old content or the new one, never a part: the file is synced before it is
    renamed, the folder, which must be there, after it. An error in the block removes what was written and leaves
    ``path`` alone; a kill leaves ``.<name>.<pid>.partial``, see `remove_leftovers`.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield aside
        with aside.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(aside, path)
    except Exception:
        aside.unlink(missing_ok=True)
        raise
    with suppress(OSError):  # a file system that cannot sync a folder has its own ways to make a renaming last
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace the content of a file in one step; text is written as UTF-8."""
    with replacing(path) as aside:
        aside.write_bytes(content.encode() if isinstance(content, str) else content)


def remove_leftovers(folder: Path, name: str = "*") -> None:
    """Remove what killed processes left aside of a file of this name, or of any; nobody may be writing one."""
    for left in folder.glob(f".{name}.*.partial"):
        left.unlink(missing_ok=True)


def read_json(path: Path) -> dict[str, Any] | None:
    """Read one JSON object; None if the file does not exist.

    Raises:
        ValueError: it is no file, cannot be decoded, or holds something else.
    """
    if not path.exists():
        return None
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds a {type(value).__name__}, expected an object")
    return value
