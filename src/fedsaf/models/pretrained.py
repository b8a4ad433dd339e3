"""Where pretrained weights are: a folder of the user's, the Hugging Face cache, or the hub, in that order."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import timm
from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url, try_to_load_from_cache

_HUB_TIMEOUT_SECONDS = 1.0


def find_weights(architecture: str, timm_name: str, folder: str | None) -> Path:
    """Return the local file with the pretrained weights of one architecture, downloading it if the hub answers.

    A file in the cache is used without asking the hub. A hub that does not answer within a second counts as absent.

    Args:
        architecture: name used in the model group.
        timm_name: name of the same network in timm, which hosts the weights.
        folder: where ``<architecture>.safetensors`` lies, or None to take timm's weights.

    Raises:
        ValueError: if no folder is given and timm hosts no weights for this architecture.
        FileNotFoundError: if the file is neither there nor to be had; the message names it and the ways to give it.
    """
    if folder is not None:
        path = Path(folder) / f"{architecture}.safetensors"
        if not path.is_file():
            raise FileNotFoundError(f"model_group.pretrained_path={folder!r} has no file {path.name!r}.")
        return path
    config = timm.models.get_pretrained_cfg(timm_name)
    if config is None or not config.hf_hub_id:
        raise ValueError(
            f"model_group.pretrained=true, but timm hosts no weights for {architecture!r}. "
            "Set model_group.pretrained=false, or give a folder by model_group.pretrained_path."
        )
    repository, file = config.hf_hub_id, config.hf_hub_filename or "model.safetensors"
    cached = try_to_load_from_cache(repository, file)
    if isinstance(cached, str):
        return Path(cached)
    if not _hub_answers(repository, file):
        raise FileNotFoundError(
            f"Pretrained weights of {architecture!r} are missing: file {file!r} of {repository!r} is not in the "
            "Hugging Face cache and the hub does not answer. Three ways to give it: point HF_HOME or HF_HUB_CACHE to a "
            f"cache that has it; put it as {architecture}.safetensors into a folder and set "
            f"model_group.pretrained_path; or run `hf download {repository} {file}` on a machine with a network and "
            "copy its cache."
        )
    return Path(hf_hub_download(repository, file))


def _hub_answers(repository: str, file: str) -> bool:
    """Ask the hub for the file's header; in a thread, because a dead name server blocks longer than any timeout."""
    answers: list[object] = []

    def ask() -> None:
        try:
            answers.append(get_hf_file_metadata(hf_hub_url(repository, file), timeout=_HUB_TIMEOUT_SECONDS))
        except Exception:  # offline mode, name resolution, refused connection: all mean "no answer"
            return

    thread = Thread(target=ask, daemon=True)
    thread.start()
    thread.join(timeout=2 * _HUB_TIMEOUT_SECONDS)
    return bool(answers)
