"""Reads the files of a run folder strictly: what is missing, damaged or of another shape is named, never guessed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any


class UnusableRun(ValueError):
    """A run folder that must not count; the message says why."""


def read_object(path: Path) -> dict[str, Any]:
    """Read a file that holds one JSON object.

    Raises:
        UnusableRun: the file is missing, unreadable, damaged or holds something else.
    """
    return _parse(_text(path), path.name)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read one object per line; a finished run has no torn line, so one is damage like any other.

    Raises:
        UnusableRun: as of `read_object`, with the line.
    """
    return [_parse(line, f"{path.name}, line {number}") for number, line in enumerate(_text(path).splitlines(), 1)]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UnusableRun(f"{path.name} is missing: a part of the folder was deleted") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UnusableRun(f"{path.name} cannot be read: {error}") from error


def _parse(text: str, where: str) -> dict[str, Any]:
    def finite(literal: str) -> float:
        value = float(literal)
        if not math.isfinite(value):
            raise UnusableRun(f"{where}: holds {literal}, expected finite numbers")
        return value

    try:
        value = json.loads(text, parse_constant=finite, parse_float=finite)
    except UnusableRun:
        raise
    except (ValueError, RecursionError) as error:
        raise UnusableRun(f"{where}: is damaged: {error}") from error
    if not isinstance(value, dict):
        raise UnusableRun(f"{where}: holds a {type(value).__name__}, expected an object")
    return value
