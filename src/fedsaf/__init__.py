"""Heterogeneous federated learning with class prototypes.

``fedsaf.runs("runs")`` is a pandas frame of everything that was recorded.
"""

from typing import Any

__all__ = ["runs"]


def __getattr__(name: str) -> Any:
    """Import the public names when they are first asked for: the entries start without pandas."""
    if name == "runs":
        from fedsaf.reproduction.frame import runs

        return runs
    raise AttributeError(f"module 'fedsaf' has no attribute {name!r}")
