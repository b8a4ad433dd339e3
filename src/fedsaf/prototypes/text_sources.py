"""Where the vector of a class name comes from: a file, hashed spelling, a random draw, or a pretrained text encoder.

A source is a module: called, it gives the (C, v) class vectors; its parameters are what the server may train.
Dimension letters: C classes, v width of the text vectors.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from fedsaf.core.types import ServerContext

OFFSET_STD = 0.02
"""Standard deviation of the initial offsets and context tokens."""


@dataclass(frozen=True)
class TextSettings:
    """What sources are told; each reads its share and refuses the rest.

    Attributes:
        path: of ``file``: a .npy or .safetensors file with one (C, v) matrix; of ``encoder``: the folder of a
            pretrained text model.
        descriptions: of ``lexical`` and ``encoder``: JSON file {class name: [descriptions]}; None for the names alone.
        template: of ``lexical`` and ``encoder``: with {name} and {description}, filled for every description.
        num_context: of ``encoder``: learnable tokens per class, at least 1.
    """

    path: str | None
    descriptions: str | None
    template: str
    num_context: int


class OffsetTable(nn.Module):
    """Fixed class vectors e_c and a learnable offset: rows e_c + O_c.

    Args:
        prior: (C, v).
    """

    def __init__(self, prior: Tensor) -> None:
        super().__init__()
        self.prior = prior
        self.offset = nn.Parameter(OFFSET_STD * torch.randn_like(prior))

    def forward(self) -> Tensor:
        """Return (C, v)."""
        return self.prior + self.offset


def from_file(context: ServerContext, settings: TextSettings) -> OffsetTable:
    """Read a matrix that was exported elsewhere, for example from the text tower of CLIP.

    Raises:
        ValueError: no path, an unreadable file, or not one row per class.
    """
    if settings.path is None:
        raise ValueError("text source 'file' needs path: a .npy or .safetensors file with one (C, v) matrix")
    path = Path(settings.path).expanduser()
    if path.suffix == ".npy":
        found = [torch.from_numpy(np.load(path, allow_pickle=False))]
    elif path.suffix == ".safetensors":
        found = list(load_file(path).values())
    else:
        raise ValueError(f"path={settings.path!r} must end in .npy or .safetensors")
    if len(found) != 1 or found[0].ndim != 2 or len(found[0]) != context.num_classes:
        shapes = [tuple(tensor.shape) for tensor in found]
        raise ValueError(f"path={settings.path!r} must hold one ({context.num_classes}, v) matrix, got {shapes}")
    if not found[0].isfinite().all():
        raise ValueError(f"path={settings.path!r} holds NaN or Inf")
    return OffsetTable(found[0].float())


def lexical(context: ServerContext, settings: TextSettings) -> OffsetTable:
    """Hash the spelling of the filled templates, see `hashed_text`; v = d. It knows nothing of what words mean.

    The words of the template, which all texts share, bring the vectors close together, as those of pretrained encoders
    are. A softmax over classes is nearly blind to what is common, but its slope follows the distances: with cosines
    around 0 the first steps of FedTSP at scale 100 throw networks without batch normalisation out of range.
    """
    vectors = [
        torch.stack([hashed_text(text, context.feature_dim) for text in texts]).mean(dim=0)
        for texts in class_texts(context, settings.descriptions, settings.template)
    ]
    return OffsetTable(F.normalize(torch.stack(vectors), dim=1).float())


def random(context: ServerContext, settings: TextSettings) -> OffsetTable:
    """Draw directions at random, the control; v = d."""
    return OffsetTable(F.normalize(torch.randn(context.num_classes, context.feature_dim), dim=1))


def encoder(context: ServerContext, settings: TextSettings) -> nn.Module:
    """Load a pretrained text model with learnable context tokens; needs the package ``transformers``."""
    from fedsaf.prototypes.text_encoder import PromptedEncoder

    if settings.path is None:
        raise ValueError("text source 'encoder' needs path: the folder of a pretrained text model")
    texts = class_texts(context, settings.descriptions, settings.template)
    return PromptedEncoder(Path(settings.path).expanduser(), texts, settings.num_context)


SOURCES: dict[str, Callable[[ServerContext, TextSettings], nn.Module]] = {
    "file": from_file,
    "lexical": lexical,
    "random": random,
    "encoder": encoder,
}


def class_texts(context: ServerContext, descriptions: str | None, template: str) -> list[list[str]]:
    """Return the texts of each class: the template filled with each of its descriptions, or with none.

    Raises:
        ValueError: class names are unknown, or a class has no description in the file.
    """
    names = [str(name).replace("_", " ") for name in context.class_names]
    if len(names) != context.num_classes:
        raise ValueError(f"text needs the names of all {context.num_classes} classes, got {len(names)}")
    if descriptions is None:
        return [[template.format(name=name, description="").strip(" :,")] for name in names]
    written = json.loads(Path(descriptions).expanduser().read_text())
    by_name = {str(name).replace("_", " "): texts for name, texts in written.items()}
    for name in names:
        if not by_name.get(name):
            near = difflib.get_close_matches(name, by_name, n=3) or sorted(by_name)[:3]
            raise ValueError(f"descriptions={descriptions!r} has none for class {name!r}; nearest: {', '.join(near)}")
    return [[template.format(name=name, description=text) for text in by_name[name]] for name in names]


def hashed_text(text: str, width: int) -> Tensor:
    """Signed feature hashing of the words and their character 3- to 5-grams: (v,) float64 of unit length.

    Texts that share words or parts of words have a positive cosine on average, others 0. A text without a word counts
    as one.

    >>> cos = hashed_text("sea lion", 512) @ hashed_text("lion", 512)
    >>> bool(cos > hashed_text("sea lion", 512) @ hashed_text("truck", 512))
    True
    """
    vector = torch.zeros(width, dtype=torch.float64)
    for feature in _features(re.findall(r"\w+", text.lower()) or [text]):
        number = int.from_bytes(hashlib.blake2b(feature.encode(), digest_size=8).digest(), "little")
        vector[(number >> 1) % width] += 1.0 - 2.0 * (number & 1)
    length = torch.linalg.vector_norm(vector)
    return vector / length if length > 0 else vector


def _features(words: Sequence[str]) -> list[str]:
    features = list(words)
    for word in words:
        bounded = f"<{word}>"
        features += [bounded[i : i + n] for n in (3, 4, 5) for i in range(len(bounded) - n + 1)]
    return features
