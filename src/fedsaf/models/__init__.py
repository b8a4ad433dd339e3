"""Architectures of the clients, from timm and beside it."""

import importlib
import sys


def _import_timm_without_wandb() -> None:
    """Import timm so that it does not bring wandb along, which ``logger=none`` promises not to load.

    timm tries ``import wandb`` for a log of its own that nobody here uses, and goes on without it.
    """
    if "wandb" in sys.modules or "timm" in sys.modules:
        return
    sys.modules["wandb"] = None  # type: ignore[assignment]
    try:
        importlib.import_module("timm")
    finally:
        del sys.modules["wandb"]


_import_timm_without_wandb()
