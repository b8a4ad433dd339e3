"""Which client trains which network.

Dimension letters: X architectures of a group, d feature dimension, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import torch
from torch import nn

from fedsaf.core.types import CountFacts, ImageFacts, InputFacts, TokenFacts
from fedsaf.models.heads import build_head, check_head
from fedsaf.models.projection import check_feature_map
from fedsaf.models.split import SplitModel

FITTING: dict[type, tuple[str, str]] = {
    ImageFacts: ("images", "htfe9"),
    TokenFacts: ("sequences of tokens", "htfe6_txt"),
    CountFacts: ("counts of words", "amazon_mlp"),
}
"""By kind of input: what it is called, and a group of the papers that reads it."""


class Architecture(Protocol):
    """What a group has to know about a trunk of any kind.

    Attributes:
        name: the name in model groups.
        cost: time of training per sample, relative to other trunks of the kind.
    """

    @property
    def name(self) -> str:
        """As above."""
        ...

    @property
    def cost(self) -> float:
        """As above."""
        ...


class ModelGroup(ABC):
    """An ordered list of architectures; client i trains number i mod X, as in HtFLlib, FedTGP and FedSAF.

    A subclass says which kind of input its trunks read, and knows the trunks by name.

    Args:
        name: name of the group in records and tables.
        architectures: the X names.
        heads: names of heads, see :data:`fedsaf.models.heads.HEADS`; client i has number i mod their count.
        feature_dim: d, equal for all clients.
        feature_map: how a trunk's width becomes d, see :class:`fedsaf.models.split.SplitModel`.
        final_relu: whether HtC heads end in a ReLU, as HtFLlib has it.

    Attributes:
        reads: the kind of facts about inputs that its trunks can be built for.

    Raises:
        ValueError: for an empty list, an unknown name, a feature dimension below one, or options that contradict.
    """

    reads: ClassVar[type]

    def __init__(
        self,
        name: str,
        architectures: Sequence[str],
        heads: Sequence[str],
        feature_dim: int,
        feature_map: str,
        final_relu: bool,
    ) -> None:
        self.name = name
        self.architectures = tuple(architectures)
        self.heads = tuple(heads)
        self.feature_dim = feature_dim
        self.feature_map = feature_map
        self.final_relu = final_relu
        for argument in ("architectures", "heads"):
            if not getattr(self, argument):
                raise ValueError(f"model_group.{argument} is empty, expected at least one name.")
        if feature_dim < 1:
            raise ValueError(f"feature_dim={feature_dim}, expected at least 1.")
        check_feature_map(feature_map)
        for head in self.heads:
            check_head(head)
            if final_relu and not head.startswith("htc"):
                raise ValueError(f"final_relu=true applies to HtC heads only, but heads contains {head!r}.")
        for architecture in self.architectures:
            self.find_architecture(architecture)

    @abstractmethod
    def find_architecture(self, name: str) -> Architecture:
        """Return what is known about a trunk.

        Raises:
            ValueError: if no trunk of this kind is called so; the message lists the nearest names.
        """

    @abstractmethod
    def check_architecture(self, name: str, inputs: Any) -> None:
        """Raise a ValueError that names the architecture if it cannot read such inputs, which are of the right kind."""

    @abstractmethod
    def build_trunk(self, name: str, inputs: Any) -> nn.Module:
        """Return a trunk with random weights of the ambient generator.

        It maps a batch of inputs to features (B, W), W being its attribute ``num_features``.
        """

    def build_client_trunk(self, client: int, inputs: Any) -> nn.Module:
        """Return the trunk that a client starts from."""
        return self.build_trunk(self.architecture_of(client).name, inputs)

    def feature_end(self, name: str) -> nn.Module | None:
        """Return what an architecture does to its d features at last, None for nothing."""
        return None

    @property
    def auxiliary(self) -> str:
        """Architecture of the small model that all clients share in FML, FedKD and FedMRL: the first of the list."""
        return self.architectures[0]

    def architecture_of(self, client: int) -> Architecture:
        """Return the architecture of a client: number ``client`` mod X."""
        return self.find_architecture(self.architectures[client % len(self.architectures)])

    def head_of(self, client: int) -> str:
        """Return the name of a client's head."""
        return self.heads[client % len(self.heads)]

    def build(self, client: int, num_classes: int, inputs: InputFacts) -> SplitModel:
        """Build the model of a client from the ambient torch generator, which the caller seeds.

        The inputs are such that :meth:`check` accepts them.

        Args:
            client: client id, from 0.
            num_classes: C.
            inputs: what the clients' inputs are like.

        Raises:
            FileNotFoundError: if pretrained weights are asked for and cannot be had.
        """
        trunk = self.build_client_trunk(client, inputs)
        head = build_head(self.head_of(client), self.feature_dim, num_classes, self.final_relu)
        end = self.feature_end(self.architecture_of(client).name)
        return SplitModel(trunk, head, self.feature_dim, self.feature_map, end)

    def memory_format_of(self, client: int, batch_size: int) -> torch.memory_format:
        """Return the layout for a client's parameters and inputs, given the size of its training batches."""
        return torch.contiguous_format

    def cost_of(self, client: int) -> float:
        """Return the training time per sample of a client's trunk, relative to other clients of the group."""
        return self.architecture_of(client).cost

    def init_key(self, client: int) -> int:
        """Return a number that two clients share exactly if their models have the same shape.

        Seeding by it gives equal architectures equal initial weights.
        """
        architecture, head = self.architecture_of(client).name, self.head_of(client)
        return self.architectures.index(architecture) * len(self.heads) + self.heads.index(head)

    def check(self, batch_size: int, inputs: InputFacts) -> None:
        """Refuse, before anything is built, data that some architecture of the group cannot train on.

        Args:
            batch_size: samples per training batch.
            inputs: what the clients' inputs are like.

        Raises:
            ValueError: if the inputs are of another kind than the group reads, or some architecture cannot train on
                them; the message names what fits.
            FileNotFoundError: if pretrained weights are asked for and cannot be had.
        """
        if not isinstance(inputs, self.reads):
            raise ValueError(
                f"model_group {self.name} reads {FITTING[self.reads][0]}, but the clients have {inputs}; "
                f"take model_group={FITTING[type(inputs)][1]}."
            )
        for architecture in dict.fromkeys(self.architectures):
            self.check_architecture(architecture, inputs)
