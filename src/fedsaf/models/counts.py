"""Networks that read counts of words: the MLPs of HtFLlib for Amazon Review.

Dimension letters: B batch, D counted words, W width of a trunk.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from fedsaf.core.types import CountFacts
from fedsaf.models.groups import ModelGroup

LAST_WIDTH = 100
"""W, the last hidden layer that all MLPs have in common."""

_COUNTED_WORDS = 5_000
"""D of the papers, for which costs are stated."""


class Mlp(nn.Module):
    """Linear layers, a ReLU after each; the last has 100 units. Default PyTorch weights.

    Args:
        num_words: D.
        hidden: widths of the layers before the last.
    """

    num_features = LAST_WIDTH

    def __init__(self, num_words: int, hidden: Sequence[int]) -> None:
        super().__init__()
        widths = (num_words, *hidden, LAST_WIDTH)
        layers: list[nn.Module] = []
        for width_in, width_out in zip(widths, widths[1:], strict=False):
            layers += [nn.Linear(width_in, width_out), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Map counts (B, D) to (B, 100), non-negative."""
        return self.layers(x)


@dataclass(frozen=True)
class CountArchitecture:
    """An MLP by its hidden layers.

    Attributes:
        name: ``mlp``, followed by one ``_<width>`` for each hidden layer before the last.
        hidden: those widths.
    """

    name: str
    hidden: tuple[int, ...]

    @property
    def cost(self) -> float:
        """Time of training per sample: multiplications, relative to the MLP without further layers."""
        widths = (_COUNTED_WORDS, *self.hidden, LAST_WIDTH)
        return sum(a * b for a, b in zip(widths, widths[1:], strict=False)) / (_COUNTED_WORDS * LAST_WIDTH)


class CountGroup(ModelGroup):
    """MLPs on counts of words; any list of hidden layers may be named, see :class:`CountArchitecture`."""

    reads = CountFacts

    def find_architecture(self, name: str) -> CountArchitecture:
        """Return the MLP whose hidden layers ``name`` lists.

        Raises:
            ValueError: if the name is not made so, or a layer has no unit.
        """
        if not re.fullmatch(r"mlp(_[1-9]\d*)*", name):
            raise ValueError(
                f"architectures contains {name!r}, expected mlp, or mlp followed by the widths of its hidden layers, "
                "for example mlp_1000_500."
            )
        return CountArchitecture(name, tuple(int(width) for width in name.split("_")[1:]))

    def check_architecture(self, name: str, inputs: CountFacts) -> None:
        """Raise a ValueError if no word is counted."""
        if inputs.dim < 1:
            raise ValueError(f"counts of {inputs.dim} words: architecture {name!r} needs at least one.")

    def build_trunk(self, name: str, inputs: CountFacts) -> nn.Module:
        """Return an MLP that maps counts (B, D) to (B, 100)."""
        return Mlp(inputs.dim, self.find_architecture(name).hidden)
