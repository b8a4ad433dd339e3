"""Networks that read sequences of tokens: HtFE6-txt of FedSAF, taken from HtFLlib.

Every trunk maps ids (B, L), cut or padded to one length with the id 0, to features (B, W), W = E. In the papers the
stated length of every sequence is L, so padding is read as any other token; with ``true_lengths`` it is left out. A
sequence of nothing but padding has length 1.

Dimension letters: B batch, L tokens per sequence, V tokens in the vocabulary, E entries of an embedding and of every
hidden layer, W width of a trunk.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

PADDING = 0
"""Id that fills a sequence up."""

_DROPOUT = 0.2
_TRANSFORMER_DROPOUT = 0.1
_TRANSFORMER_HEADS = 8


def lengths_of(ids: Tensor) -> Tensor:
    """Return (B,) positions up to the last token that is not padding, at least 1.

    >>> lengths_of(torch.tensor([[5, 0, 7, 0], [0, 0, 0, 0]])).tolist()
    [3, 1]
    """
    positions = torch.arange(1, ids.shape[1] + 1, device=ids.device)
    return ((ids != PADDING) * positions).amax(dim=1).clamp(min=1)


class MeanEmbedding(nn.Module):
    """Mean of the embeddings over the positions; the padding row is zero and stays so.

    Args:
        num_tokens: V.
        length: L.
        dim: E.
        true_lengths: divide by the length of the sequence, not by L.
    """

    def __init__(self, num_tokens: int, length: int, dim: int, true_lengths: bool) -> None:
        super().__init__()
        self.true_lengths = true_lengths
        self.num_features = dim
        # not torch's EmbeddingBag, which cannot be differentiated twice, as FedL2G does
        self.embedding = nn.Embedding(num_tokens, dim, padding_idx=PADDING)

    def forward(self, ids: Tensor) -> Tensor:
        """Map ids (B, L) to (B, E)."""
        total = self.embedding(ids).sum(dim=1)
        return total / lengths_of(ids)[:, None] if self.true_lengths else total / ids.shape[1]


class FastText(MeanEmbedding):
    """Mean of the embeddings, then one linear layer; E (E + 1) parameters beside the embedding."""

    def __init__(self, num_tokens: int, length: int, dim: int, true_lengths: bool) -> None:
        super().__init__(num_tokens, length, dim, true_lengths)
        self.linear = nn.Linear(dim, dim)

    def forward(self, ids: Tensor) -> Tensor:
        """Map ids (B, L) to (B, E)."""
        return self.linear(super().forward(ids))


class _Recurrent(nn.Module):
    """Embedding and recurrent layers; subclasses say what is made of their output."""

    num_layers, directions = 2, 1
    cell: type[nn.LSTM | nn.GRU] = nn.LSTM
    padding_row: int | None = PADDING

    def __init__(self, num_tokens: int, length: int, dim: int, true_lengths: bool) -> None:
        super().__init__()
        self.true_lengths = true_lengths
        self.num_features = dim
        self.embedding = nn.Embedding(num_tokens, dim, padding_idx=self.padding_row)
        between = _DROPOUT if self.num_layers > 1 else 0.0
        bidirectional = self.directions == 2
        self.rnn = self.cell(dim, dim, self.num_layers, batch_first=True, dropout=between, bidirectional=bidirectional)

    def last_outputs(self, ids: Tensor) -> Tensor:
        """Return the top layer's outputs at the last position of each sequence, (B, directions * E)."""
        self.rnn.flatten_parameters()  # on a GPU weights bound from a state lie apart; elsewhere nothing happens
        embedded = self.embedding(ids)
        if not self.true_lengths:
            return self.rnn(embedded)[0][:, -1]
        lengths = lengths_of(ids)
        packed = pack_padded_sequence(embedded, lengths.cpu(), batch_first=True, enforce_sorted=False)
        outputs, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return outputs[torch.arange(len(ids), device=ids.device), lengths - 1]


class Lstm(_Recurrent):
    """Two LSTM layers with dropout between; last output, ReLU, dropout."""

    def __init__(self, num_tokens: int, length: int, dim: int, true_lengths: bool) -> None:
        super().__init__(num_tokens, length, dim, true_lengths)
        self.end = nn.Sequential(nn.ReLU(), nn.Dropout(_DROPOUT))

    def forward(self, ids: Tensor) -> Tensor:
        """Map ids (B, L) to (B, E), non-negative."""
        return self.end(self.last_outputs(ids))


class Gru(_Recurrent):
    """Two GRU layers with dropout between; last hidden state of the upper one, dropout."""

    cell = nn.GRU

    def __init__(self, num_tokens: int, length: int, dim: int, true_lengths: bool) -> None:
        super().__init__(num_tokens, length, dim, true_lengths)
        self.end = nn.Dropout(_DROPOUT)

    def forward(self, ids: Tensor) -> Tensor:
        """Map ids (B, L) to (B, E)."""
        return self.end(self.last_outputs(ids))


class BiLstm(_Recurrent):
    """One LSTM layer in both directions; both outputs at the last position, then a linear layer 2 E -> E.

    The backward direction has read nothing but the last token there, as in HtFLlib, so its recurrent matrix never
    matters and keeps its initial values. The padding row learns.
    """

    num_layers, directions, padding_row = 1, 2, None

    def __init__(self, num_tokens: int, length: int, dim: int, true_lengths: bool) -> None:
        super().__init__(num_tokens, length, dim, true_lengths)
        self.linear = nn.Linear(2 * dim, dim)

    def forward(self, ids: Tensor) -> Tensor:
        """Map ids (B, L) to (B, E)."""
        return self.linear(self.last_outputs(ids))


class Transformer(nn.Module):
    """Two post-norm encoder layers of eight heads and 4 E feed-forward units; the output at position 0.

    Embeddings times sqrt(E), plus sinusoids of the position, dropout. The padding row learns. Both layers start from
    the same draw, as torch builds an encoder.

    Args:
        num_tokens: V.
        length: L.
        dim: E, a multiple of 8.
        true_lengths: keep padding out of the attention; the papers have no such mask.
    """

    def __init__(self, num_tokens: int, length: int, dim: int, true_lengths: bool) -> None:
        super().__init__()
        self.true_lengths = true_lengths
        self.num_features = dim
        self.embedding = nn.Embedding(num_tokens, dim)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        self.positions: Tensor
        self.register_buffer("positions", sinusoids(length, dim), persistent=False)
        self.dropout = nn.Dropout(_TRANSFORMER_DROPOUT)
        layer = nn.TransformerEncoderLayer(dim, _TRANSFORMER_HEADS, 4 * dim, _TRANSFORMER_DROPOUT, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Map ids (B, L) to (B, E)."""
        length = ids.shape[1]
        x = self.dropout(self.embedding(ids) * math.sqrt(self.num_features) + self.positions[:length])
        mask = None
        if self.true_lengths:
            mask = torch.arange(length, device=ids.device) >= lengths_of(ids)[:, None]
        return self.encoder(x, src_key_padding_mask=mask)[:, 0]


def sinusoids(length: int, dim: int) -> Tensor:
    """Return (length, dim): sin(p w) in even columns, cos(p w) in odd ones, w falling from 1 to about 1/10000.

    >>> sinusoids(2, 2)
    tensor([[0.0000, 1.0000],
            [0.8415, 0.5403]])
    """
    rates = torch.exp(torch.arange(0, dim, 2) * (-math.log(10_000) / dim))
    angles = torch.arange(length)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)


@dataclass(frozen=True)
class TextArchitecture:
    """How to build one trunk, and what a federation has to know about it.

    Attributes:
        name: the name in model groups.
        trunk: builder from V, L, E and ``true_lengths``.
        log_softmax: whether HtFLlib leaves a log-softmax behind the features.
        cost: time of training per sample, relative to the LSTM, see ``TEXT_ARCHITECTURES``.
        width_divisor: E must be a multiple of it.
    """

    name: str
    trunk: Callable[[int, int, int, bool], nn.Module]
    log_softmax: bool
    cost: float
    width_divisor: int = 1

    def check_width(self, dim: int) -> None:
        """Raise a ValueError that names the next width that fits if E = ``dim`` does not."""
        if dim % self.width_divisor:
            raise ValueError(
                f"model_group.embedding_dim={dim}: architecture {self.name!r} needs a multiple of "
                f"{self.width_divisor}; the next is {-(-dim // self.width_divisor) * self.width_divisor}."
            )


TEXT_ARCHITECTURES: dict[str, TextArchitecture] = {
    architecture.name: architecture
    for architecture in (
        TextArchitecture("fasttext", FastText, True, 0.03),
        TextArchitecture("lstm", Lstm, True, 1.0),
        TextArchitecture("bilstm", BiLstm, False, 1.1),
        TextArchitecture("transformer", Transformer, False, 2.0, _TRANSFORMER_HEADS),
        TextArchitecture("logistic_regression", MeanEmbedding, True, 0.01),
        TextArchitecture("gru", Gru, True, 1.2),
    )
}
"""By name; costs from training steps (cross-entropy, SGD) on one CPU thread, float32, 16 sequences of 200 tokens of
32,000, E = 512. They balance ranks only, for which a factor of 1.5 does not matter.
"""
