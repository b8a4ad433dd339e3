"""What a run was made of beside its configuration: the code of its parts and the data files.

The hash of a configuration says nothing about the content of ``my_losses.py`` or of ``images.parquet``. So every run
writes `FINGERPRINT` when it starts, and a finished one is compared with what is there now before it is shown.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fedsaf.core.code import code_of, git_state
from fedsaf.core.files import read_json, write_atomically

FINGERPRINT = "fingerprint.json"
MANY = 1000
"""Data files up to which each is noted by name; beyond, the files of a folder are noted together."""


class Data(Protocol):
    """What is asked of a data set."""

    @property
    def files(self) -> Sequence[Path]:
        """Where it was read from; empty where no file was."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 of what was read."""


@dataclass
class Changes:
    """What is no longer as it was when a run was made.

    Attributes:
        parts: own parts and data files, in words: the numbers of the run are not those of what is there now.
        notes: what may not matter, one sentence each: code of fedsaf or of a library, data that are gone.
    """

    parts: list[str]
    notes: list[str]


def write_fingerprint(folder: Path, config: Mapping[str, Any], data: Data, commit: str | None) -> None:
    """Record what a run is made of: resolved configuration, data as loaded, commit of the source tree if known."""
    _write(folder, {"code": {**code_of(config), "commit": commit}, "data": _data_of(config, data)})


def read_fingerprint(folder: Path) -> dict[str, Any]:
    """Return what `write_fingerprint` wrote; {} for a run older than fingerprints, or if it cannot be read."""
    try:
        return read_json(folder / FINGERPRINT) or {}
    except ValueError:
        return {}


def changes_since(folder: Path, config: Mapping[str, Any], load: Callable[[], Data]) -> Changes:
    """Compare what a run was made of with what is there now; of what nobody recorded nothing is said.

    Data are first looked at from outside: names, sizes and times of their files. Only if these differ they are loaded,
    and only other content is a change; the same content is noted with its new sizes and times. Not seen: files that a
    table names in its rows, and a change that keeps size and time.

    ``config`` is resolved and of the same identity as the run's; ``load`` may raise ValueError or OSError.
    """
    recorded, found = read_fingerprint(folder), Changes([], [])
    code, data = _node(recorded, "code"), _node(recorded, "data")
    if code:
        _compare_code(code, code_of(config), found)
    if not (touched := _touched(data)):
        return found
    if not any(_place(text).exists() for text in _node(data, "folders")):
        found.notes.append(f"the data of this run are not here any more ({touched[0]}), so they are not compared")
        return found
    names = ", ".join(touched[:3]) + (f" and {len(touched) - 3} more" if len(touched) > 3 else "")
    try:
        loaded = load()
    except (ValueError, OSError) as error:
        found.parts.append(f"the data ({names}: {str(error).splitlines()[0]})")
        return found
    if loaded.fingerprint != data.get("content"):
        found.parts.append(f"the data ({names})")
    else:
        with suppress(OSError):  # a folder that is only to be read
            _write(folder, recorded | {"data": _data_of(config, loaded)})
    return found


def _write(folder: Path, content: Mapping[str, Any]) -> None:
    write_atomically(folder / FINGERPRINT, json.dumps(content, indent=1, sort_keys=True) + "\n")


def _compare_code(was: Mapping[str, Any], now: Mapping[str, Any], found: Changes) -> None:
    for name, files in _changed(_node(was, "own"), now["own"]):
        found.parts.append(f"the code of {name} ({files})")
    for name, files in _changed(_node(was, "libraries"), now["libraries"]):
        found.notes.append(f"the library of {name} has changed since this run was made ({files})")
    if was.get("sha256") != now["sha256"]:
        today = _release({**now, "commit": (git_state() or {}).get("commit")})
        found.notes.append(f"fedsaf itself has changed since this run was made: {_release(was)} then, {today} now")


def _release(code: Mapping[str, Any]) -> str:
    return f"{code.get('version') or 'no version'} ({str(code.get('commit') or 'no commit')[:9]})"


def _changed(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the parts whose files hold something else, and their names; a renamed file is no change."""
    for name in sorted(was.keys() | now.keys()):
        before, after = _node(was, name), _node(now, name)
        if sorted(map(str, before.values())) != sorted(map(str, after.values())):
            yield name, ", ".join(file for file in sorted({**before, **after}) if before.get(file) != after.get(file))


def _data_of(config: Mapping[str, Any], data: Data) -> dict[str, Any]:
    """Return content and outer look of data: the folders in which they lie, and those up to the one that has it all.

    ``$DATA_ROOT/<name>`` is looked at even while it is empty: data that come to lie there are taken first.
    """
    files = list(data.files)
    if not files:
        return {"content": data.fingerprint}
    top = Path(os.path.commonpath([file.parent for file in files]))
    folders = {_text(folder) for file in files for folder in file.parents if folder == top or top in folder.parents}
    if name := _node(config, "dataset").get("name"):
        folders.add(f"$DATA_ROOT/{name}")
    kinds, by_name = sorted({file.suffix for file in files}), len(files) <= MANY
    looks = {folder: _look(folder, kinds, by_name) for folder in sorted(folders)}
    return {"content": data.fingerprint, "kinds": kinds, "by_name": by_name, "folders": looks}


def _look(folder: str, kinds: Sequence[str], by_name: bool) -> Any:
    """Return size and time of each file of some kinds in a folder, by name, and null for each folder in it.

    A checksum of this instead, unless it is wanted by name; None if there is no such folder.
    """
    seen: dict[str, str | None] = {}
    with suppress(OSError), os.scandir(_place(folder)) as entries:
        for entry in entries:
            if entry.is_dir():
                seen[entry.name] = None
            elif entry.name.endswith(tuple(kinds)):
                state = entry.stat(follow_symlinks=os.path.exists(entry))
                seen[entry.name] = f"{state.st_size} {state.st_mtime_ns}"
        return seen if by_name else hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()
    return None


def _touched(data: Mapping[str, Any]) -> list[str]:
    """Return the files and folders that do not look as they did."""
    found, kinds = [], data.get("kinds")
    kinds = [str(kind) for kind in kinds] if isinstance(kinds, list) else []
    for folder, was in _node(data, "folders").items():
        now = _look(folder, kinds, bool(data.get("by_name")))
        if isinstance(now, dict) and isinstance(was, dict):
            names = sorted(name for name in now.keys() | was.keys() if now.get(name, "") != was.get(name, ""))
            found += [str(Path(folder) / name) for name in names]
        elif now != was:
            found.append(folder)
    return found


def _text(folder: Path) -> str:
    """Return a folder without what belongs to this machine: below ``$DATA_ROOT`` or the home folder, else as it is."""
    root = os.environ.get("DATA_ROOT")
    for start, text in ((root and Path(root).expanduser(), "$DATA_ROOT"), (Path("~").expanduser(), "~")):
        if start and folder.is_relative_to(start):
            return f"{text}/{folder.relative_to(start).as_posix()}"
    return str(folder)


def _place(folder: str) -> Path:
    return Path(os.path.expandvars(folder)).expanduser()


def _node(content: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return an inner mapping; {} where there is something else, as in a file of another version."""
    value = content.get(key)
    return value if isinstance(value, dict) else {}
