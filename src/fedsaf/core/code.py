"""Checksums of the code behind a run: own parts, libraries, and fedsaf itself. Nothing is imported for them."""

from __future__ import annotations

import ast
import hashlib
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedsaf.core.identity import PARTS

PACKAGE = Path(__file__).resolve().parents[1]
STANDARD = Path(sysconfig.get_path("stdlib")).resolve()
WITHOUT_RESULT = ("reproduction", "tracking")
"""Rooms of fedsaf that record and show, and change no number."""


def code_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return checksums of the code behind a configuration.

    Returns:
        ``own`` and ``libraries``: name of each part that is no part of fedsaf -> file -> SHA-256. Of an own part these
        are the file of its module and those in the same folder that it imports, directly or by each other. ``version``
        of fedsaf, and ``sha256`` of its source as far as it changes a number.
    """
    found: dict[str, dict[str, dict[str, str]]] = {"own": {}, "libraries": {}}
    for target in sorted({target for part in PARTS for target in _targets(config.get(part))}):
        file, name = _module_file(target), target.rpartition(".")[2]
        if file is None or PACKAGE in file.parents:
            continue
        installed = STANDARD in file.parents or {"site-packages", "dist-packages"} & set(file.parts)
        kind, files = ("libraries", [file]) if installed else ("own", _reached(file))
        sums = {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in files}
        found[kind][name] = found[kind].get(name, {}) | sums
    digest = hashlib.sha256()
    for file in sorted(PACKAGE.rglob("*.py")):
        inside = file.relative_to(PACKAGE)
        if inside.parts[0] not in WITHOUT_RESULT:
            digest.update(f"{inside.as_posix()}\n".encode() + file.read_bytes())
    return {**found, "version": version_of("fedsaf"), "sha256": digest.hexdigest()}


def git_state(folder: Path = PACKAGE) -> dict[str, Any] | None:
    """Return the commit of a source tree and whether the tree differs from it; None outside a repository."""
    start = ["git", "-C", str(folder)]
    try:
        commit, changes = (
            subprocess.run([*start, *words], capture_output=True, text=True, check=True, timeout=30).stdout.strip()
            for words in (("rev-parse", "HEAD"), ("status", "--porcelain"))
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": commit, "dirty": bool(changes)}


def _targets(node: Any) -> Iterator[str]:
    """Yield what a node builds its parts of, also by ``hydra.utils.get_class`` and its like."""
    if isinstance(node, Mapping):
        target = node.get("_target_")
        if isinstance(target, str):
            yield str(node.get("path")) if target.startswith("hydra.utils.get_") else target
    for item in node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ():
        yield from _targets(item)


def _module_file(target: str) -> Path | None:
    """Return the source of the module that a dotted path leads into; None if there is none, as for a built-in one."""
    dotted, *others = target.split(".")[:-1] or [target]
    spec: ModuleSpec | None = None
    with suppress(ImportError, ValueError):
        spec = find_spec(dotted)
    for name in others:
        dotted = f"{dotted}.{name}"
        places = spec and spec.submodule_search_locations
        inner = PathFinder.find_spec(dotted, list(places)) if places else None
        if inner is None:  # from here on the path leads through a class
            break
        spec = inner
    origin = spec and spec.origin
    return Path(origin).resolve() if origin and origin.endswith(".py") else None


def _reached(file: Path) -> list[Path]:
    """Return a source file and those in its folder that it imports, directly or by each other."""
    found: list[Path] = []
    waiting = [file]
    while waiting:
        file = waiting.pop()
        found.append(file)
        names: set[str] = set()
        with suppress(SyntaxError, ValueError):  # of which the run will speak
            for node in ast.walk(ast.parse(file.read_bytes())):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    dotted = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
                    names |= {name for one in dotted for name in one.split(".")}
        near = [file.with_name(f"{name}.py") for name in sorted(names) if name]
        waiting += [path for path in near if path.is_file() and path not in (*found, *waiting)]
    return sorted(found)


def version_of(package: str) -> str | None:
    """Return the version of an installed package; None if it is missing."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
