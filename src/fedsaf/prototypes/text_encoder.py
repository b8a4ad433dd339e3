"""A frozen pretrained text model with learnable context tokens: the prior of FedTSP. Needs ``transformers``.

Dimension letters: n texts, L tokens, w width of the token embeddings, v width of the text vectors, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from fedsaf.prototypes.class_means import class_means
from fedsaf.prototypes.text_sources import OFFSET_STD


class PromptedEncoder(nn.Module):
    """Class vectors of a text model, mean over the descriptions of a class.

    Behind its start token, the first ``num_context`` token embeddings of every text are replaced by learnable ones,
    the same for all texts of a class. A text vector is ``text_embeds`` of a CLIP text tower (the output at the
    end-of-text position, projected), else the last hidden state at the first position (BERT).

    Args:
        folder: of a pretrained model and its tokeniser, in the format of ``transformers``.
        texts: for each class its texts.
        num_context: at least 1.

    Attributes:
        prior: (C, v), the class vectors of the texts as they are; tells one text source from another.
        context: (C, num_context, w), the only parameter that learns.

    Raises:
        ModuleNotFoundError: ``transformers`` is not installed.
        ValueError: no such folder, or a text with fewer tokens than the context would replace.
    """

    def __init__(self, folder: Path, texts: Sequence[Sequence[str]], num_context: int) -> None:
        super().__init__()
        if not folder.is_dir():
            raise ValueError(f"path={str(folder)!r} must be the folder of a pretrained text model")
        if num_context < 1:
            raise ValueError(f"num_context must be at least 1, got {num_context}")
        self._model, tokenise = load_text_model(folder)
        flat = [text for of_class in texts for text in of_class]
        self._tokens = tokenise(flat)
        self._check_room(flat, num_context)
        self._owner = torch.repeat_interleave(torch.tensor([len(of_class) for of_class in texts]))
        embedding = self._model.get_input_embeddings()
        self._insert = False
        embedding.register_forward_hook(self._insert_context)
        with torch.no_grad():
            self.prior = self._encode()
        self.context = nn.Parameter(OFFSET_STD * torch.randn(len(texts), num_context, embedding.weight.shape[1]))
        self._insert = True

    def _check_room(self, texts: Sequence[str], num_context: int) -> None:
        lengths = self._tokens["attention_mask"].sum(dim=1).tolist()
        for text, length in zip(texts, lengths, strict=True):
            if length < num_context + 2:
                raise ValueError(
                    f"num_context={num_context} replaces more than the {length - 2} tokens of {text!r} between start "
                    "and end; lower it, or write longer descriptions"
                )

    def _insert_context(self, module: nn.Module, inputs: tuple[Tensor], embedded: Tensor) -> Tensor:
        """Replace embeddings 1 ... num_context of each text; a forward callback of the token embedding."""
        if not self._insert:
            return embedded
        rest = embedded[:, 1 + self.context.shape[1] :]
        return torch.cat([embedded[:, :1], self.context[self._owner], rest], dim=1)

    def _encode(self) -> Tensor:
        output = self._model(**self._tokens)
        vectors = output["text_embeds"] if "text_embeds" in output else output["last_hidden_state"][:, 0]
        return class_means(vectors, self._owner, int(self._owner[-1]) + 1).rows

    def forward(self) -> Tensor:
        """Return (C, v)."""
        return self._encode()


def load_text_model(folder: Path):
    """Return a frozen text model in evaluation mode, and its tokeniser: texts -> padded tensors.

    Raises:
        ModuleNotFoundError: ``transformers`` is not installed.
    """
    try:
        from transformers import AutoConfig, AutoModel, AutoTokenizer, CLIPTextModelWithProjection
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "text source 'encoder' needs the package transformers: pip install 'fedsaf[text]'", name=error.name
        ) from error
    kind = AutoConfig.from_pretrained(folder, local_files_only=True).model_type
    loader = CLIPTextModelWithProjection if kind.startswith("clip") else AutoModel
    model = loader.from_pretrained(folder, local_files_only=True).eval().requires_grad_(False)
    tokeniser = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    longest = getattr(model.config, "max_position_embeddings", None)

    def tokenise(texts: Sequence[str]) -> dict[str, Tensor]:
        return dict(
            tokeniser(
                list(texts), padding=True, truncation=longest is not None, max_length=longest, return_tensors="pt"
            )
        )

    return model, tokenise
