"""Groups of networks that read sequences of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from torch import nn

from fedsaf.core.types import TokenFacts
from fedsaf.models.groups import ModelGroup
from fedsaf.models.text import TEXT_ARCHITECTURES, TextArchitecture


class TextGroup(ModelGroup):
    """Text trunks, see :data:`fedsaf.models.text.TEXT_ARCHITECTURES`.

    Args:
        name: see :class:`fedsaf.models.groups.ModelGroup`, as for the other common ones.
        architectures: the X names.
        heads: names of heads.
        feature_dim: d.
        feature_map: how a trunk's width becomes d.
        final_relu: whether HtC heads end in a ReLU.
        embedding_dim: entries of an embedding and of every hidden layer.
        true_lengths: whether padding is left out, instead of being read as any other token.
        feature_logsoftmax: whether the d features of fastText, LSTM, logistic regression and GRU end in a log-softmax.
            HtFLlib's do: the log-softmax behind the last layer stays when pooling replaces that layer.

    Raises:
        ValueError: see :class:`fedsaf.models.groups.ModelGroup`; or for an embedding that is empty or does not fit a
            Transformer.
    """

    reads = TokenFacts

    def __init__(
        self,
        name: str,
        architectures: Sequence[str],
        heads: Sequence[str],
        feature_dim: int,
        feature_map: str,
        final_relu: bool,
        embedding_dim: int,
        true_lengths: bool,
        feature_logsoftmax: bool,
    ) -> None:
        super().__init__(name, architectures, heads, feature_dim, feature_map, final_relu)
        if embedding_dim < 1:
            raise ValueError(f"model_group.embedding_dim={embedding_dim}, expected at least 1.")
        self.embedding_dim = embedding_dim
        self.true_lengths = true_lengths
        self.feature_logsoftmax = feature_logsoftmax
        for architecture in map(self.find_architecture, self.architectures):
            architecture.check_width(embedding_dim)

    def find_architecture(self, name: str) -> TextArchitecture:
        """Return what is known about a trunk."""
        if name not in TEXT_ARCHITECTURES:
            nearest = get_close_matches(name, TEXT_ARCHITECTURES, n=3, cutoff=0.5) or TEXT_ARCHITECTURES
            raise ValueError(
                f"architectures contains {name!r}, expected names of text networks; nearest: {', '.join(nearest)}."
            )
        return TEXT_ARCHITECTURES[name]

    def check_architecture(self, name: str, inputs: TokenFacts) -> None:
        """Raise a ValueError if sequences have no position, or the vocabulary no token beside padding."""
        self.find_architecture(name).check_width(self.embedding_dim)
        if inputs.length < 1:
            raise ValueError(f"sequences of {inputs.length} tokens: architecture {name!r} needs at least one.")
        if inputs.num_tokens < 2:
            raise ValueError(
                f"a vocabulary of {inputs.num_tokens} entries: architecture {name!r} needs padding and one token."
            )

    def build_trunk(self, name: str, inputs: TokenFacts) -> nn.Module:
        """Return a trunk that maps ids (B, L) to (B, E)."""
        build = self.find_architecture(name).trunk
        return build(inputs.num_tokens, inputs.length, self.embedding_dim, self.true_lengths)

    def feature_end(self, name: str) -> nn.Module | None:
        """Return the log-softmax of HtFLlib where it is asked for and the architecture has it."""
        asked = self.feature_logsoftmax and self.find_architecture(name).log_softmax
        return nn.LogSoftmax(dim=1) if asked else None
