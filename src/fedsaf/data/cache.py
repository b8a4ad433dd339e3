"""Where things that take long to make from data wait for the next run."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(kind: str) -> Path:
    """Return the folder for one kind of things, made if need be: below ``$FEDSAF_CACHE``, else ``~/.cache/fedsaf``.

    Raises:
        ValueError: it cannot be made.
    """
    folder = Path(os.environ.get("FEDSAF_CACHE") or "~/.cache/fedsaf").expanduser() / kind
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"the cache folder {folder} cannot be made ({error}); set FEDSAF_CACHE=<folder with room>"
        ) from error
    return folder
