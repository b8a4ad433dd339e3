"""Local training (Local, SOLO): no exchange, cross-entropy alone. The floor of every comparison."""

from __future__ import annotations

from fedsaf.federation.method import Method
from fedsaf.losses.objective import objective


def local(name: str) -> Method:
    """Return the method.

    Args:
        name: as it appears in records.
    """
    return Method(name, objective())
