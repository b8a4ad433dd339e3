"""What travelled last, kept in the run folder: broadcasts, and the clients' own class rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file

from fedsaf.core.files import replacing
from fedsaf.core.types import ClientResult, Message
from fedsaf.federation.server import Server

CLASS_ROWS = {"labels": "labels", "values": "means"}
"""Parts of a message that holds one row per class of its client, and their names in the file."""


def save_broadcast(folder: Path, server: Server) -> None:
    """Write what each channel broadcasts at the end, one ``<channel>.safetensors`` per channel."""
    for name, message in server.broadcast().items():
        if message is not None:
            _save(message, folder / f"{name}.safetensors")


def save_uploads(folder: Path, results: Sequence[ClientResult], server: Server) -> None:
    """Write the class rows that the participants of a round uploaded, one ``uploads_<channel>.safetensors`` each.

    The files hold ``client`` (n,) int64, ``labels`` (n,) int64 and ``means`` (n, d), by client and class. A channel
    whose messages are no class rows, or over which nobody uploaded any, has no file.

    Args:
        folder: run folder.
        results: what the participants brought home, in any order.
        server: for the names of its channels.
    """
    for name in server.channels:
        uploads = [upload for upload in server.uploads(results, name) if upload.message.keys() >= CLASS_ROWS.keys()]
        if not any(len(upload.message["labels"]) for upload in uploads):
            continue
        clients = [torch.full_like(upload.message["labels"], upload.client) for upload in uploads]
        rows = {name: torch.cat([upload.message[part] for upload in uploads]) for part, name in CLASS_ROWS.items()}
        _save({"client": torch.cat(clients), **rows}, folder / f"uploads_{name}.safetensors")


def _save(tensors: Message, path: Path) -> None:
    with replacing(path) as aside:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, aside)
