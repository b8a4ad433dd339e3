"""FedKD (Wu et al., 2022): a private mentor and a shared mentee distil into each other, the more the better both are.

A round: the client receives the mentee. With p of the mentor f, q of the mentee f_m, A = CE(p) + CE(q), and a private
W_h that maps the mentee's features to the mentor's,
  mentor: CE(p) + [KL(q || p) + MSE(f(x), W_h f_m(x))] / A      mentee: CE(q) + [KL(p || q) + the same MSE] / A,
A and teachers constant, every network's gradient clipped. It sends the mentee, each matrix as its leading singular
vectors that hold the energy E_t; the server averages what arrives and compresses again. In the first round it sends the
mentee in full. Mentor and W_h stay; the mentor answers.

Travels: the compressed mentee, both ways; see `fedsaf.methods.fedkd_compression`. Register entries: D5, D15, D17.
Dimension letters: B batch, d feature dimension.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsaf.core.checks import one_of
from fedsaf.core.contracts import Aggregator, AuxiliaryModel, Batches, Client
from fedsaf.core.types import Message, ServerContext, StepView, Upload
from fedsaf.federation.method import Channel, Method
from fedsaf.federation.scopes import AUXILIARY, read_scope, scope_module, write_scope
from fedsaf.losses.objective import objective
from fedsaf.methods.auxiliary_model import (
    AuxiliaryCrossEntropy,
    Distillation,
    GradientClipping,
    SmallModel,
    WithAuxiliary,
)
from fedsaf.methods.averaging import WEIGHTINGS, ParameterChannel, mean_of_messages, travelling
from fedsaf.methods.fedkd_compression import REFERENCE, Compression, reference
from fedsaf.models.context import ModelContext

MENTEE, HIDDEN_MAP = "mentee", "hidden_map"
SCOPE = f"{AUXILIARY}{MENTEE}"
LEAST_ERROR = 1e-8
"""Where A, by which terms are divided, is floored."""


class HiddenMap(AuxiliaryModel):
    """Builder of W_h: d^2 parameters, private."""

    def build(self, context: ModelContext, client: int) -> nn.Module:
        """Return a linear layer without bias."""
        return nn.Linear(context.group.feature_dim, context.group.feature_dim, bias=False)


class CompressedChannel(ParameterChannel):
    """The mentee up and down, through a compression.

    Args:
        buffers: ``average`` or ``ignore``.
        compression: the aggregator's.
    """

    def __init__(self, buffers: str, compression: Compression) -> None:
        super().__init__(SCOPE, buffers)
        self.compression = compression

    def receive(self, client: Client, message: Message | None) -> None:
        """Replace the mentee's tensors by what the message stands for."""
        if message is None:
            return
        state = travelling(scope_module(client, SCOPE).state_dict(), self.buffers)
        shapes = {name: tensor.shape for name, tensor in state.items()}
        tensors = self.compression.unpack(message, shapes, reference(message, shapes))
        write_scope(client, SCOPE, tensors)
        if self.compression.of_updates:
            client.scratch[SCOPE] = tensors

    def send(self, client: Client, batches: Batches) -> Message:
        """Return the mentee's parameters, or their change since they were received, compressed with E_t."""
        tensors = travelling(read_scope(client, SCOPE), self.buffers)
        base = client.scratch.pop(SCOPE, {})
        return self.compression.pack(tensors, base, self.compression.energy(client.round, client.rounds))


class AdaptiveDistillation(Distillation):
    """`Distillation`, KL(q || p) or KL(p || q), divided by A, so that poor networks teach little."""

    def __call__(self, view: StepView) -> Tensor:
        """Return a scalar >= 0."""
        return super().__call__(view) / joint_error(view, self.detach_teacher)


class HiddenDistillation:
    """The hidden terms of both networks: 2 MSE(f(x), W_h f_m(x)) / A, mean over entries.

    The mentor follows the mapped mentee and the mapped mentee follows the mentor. With constant teachers each network
    receives the gradient of one MSE; the public code backpropagates both into all, so that it counts twice (D15).

    Args:
        detach_teacher: whether teachers and A are constants.
    """

    def __init__(self, detach_teacher: bool) -> None:
        self.detach_teacher = detach_teacher

    def __call__(self, view: StepView) -> Tensor:
        """Return a scalar >= 0."""
        mentor = view.z.float()
        mentee = view.auxiliary[HIDDEN_MAP](view.outputs[MENTEE][0]).float()
        targets = (mentee.detach(), mentor.detach()) if self.detach_teacher else (mentee, mentor)
        value = F.mse_loss(mentor, targets[0]) + F.mse_loss(mentee, targets[1])
        return value / joint_error(view, self.detach_teacher)


def joint_error(view: StepView, detach: bool) -> Tensor:
    """Return A = CE(p) + CE(q) of the step, at least 1e-8."""
    mentor, mentee = (F.cross_entropy(logits.float(), view.y) for logits in (view.logits, view.outputs[MENTEE][1]))
    error = (mentor + mentee).clamp_min(LEAST_ERROR)
    return error.detach() if detach else error


class CompressedMean(Aggregator):
    """Mean of the reconstructed mentees over the participants, compressed again for the way down.

    Its state is the message that it sends: in the first round the initial parameters in full, later the compressed
    mean. With ``updates`` that message also holds, as part ``reference``, the parameters to which the change applies; a
    client of the former round holds them already, so the part is left out of the byte count.

    Args:
        weighting: ``samples`` or ``uniform``.
        buffers: as the client's.
        compression: as the client's.
    """

    def __init__(self, weighting: str, buffers: str, compression: Compression) -> None:
        self.weighting, self.buffers = one_of("weighting", weighting, WEIGHTINGS), buffers
        self.compression = compression

    def prepare(self, context: ServerContext) -> None:
        """Start from the server's own draw, which goes out in full."""
        self._rounds = context.rounds
        self._message = travelling(context.initial(SCOPE), self.buffers)
        self._shapes = {name: tensor.shape for name, tensor in self._message.items()}

    def update(self, uploads: Sequence[Upload], round: int) -> dict[str, float]:
        """Average what the uploads stand for, in float64; compress with E_t. Without uploads nothing changes.

        Returns:
            ``kept``: scalars of the compressed mean over scalars of the parameters.
        """
        if not uploads:
            return {}
        base = self._tensors(self._message)
        mentees = [self.compression.unpack(u.message, self._shapes, base) for u in uploads]
        mean = mean_of_messages(mentees, [u.num_samples for u in uploads], self.weighting)
        message = self.compression.pack(mean, base, self.compression.energy(round, self._rounds))
        kept = sum(part.numel() for part in message.values()) / sum(shape.numel() for shape in self._shapes.values())
        if self.compression.of_updates:
            message[REFERENCE] = torch.cat([tensor.flatten() for tensor in base.values()])
        self._message = message
        return {"kept": kept}

    def _tensors(self, message: Message) -> dict[str, Tensor]:
        return self.compression.unpack(message, self._shapes, reference(message, self._shapes))

    def broadcast(self) -> Message | None:
        """Return the compressed mean; before the first update the initial parameters."""
        return dict(self._message)

    def state_dict(self) -> dict[str, Tensor]:
        """Return what is sent."""
        return dict(self._message)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what is sent; KeyError if a part is missing."""
        self._tensors(dict(state))
        self._message = dict(state)


def fedkd(
    name: str,
    distillation_weight: float,
    hidden_weight: float,
    kl_reduction: str,
    detach_teacher: bool,
    max_norm: float,
    architecture: str | None,
    mentee_lr: float | None,
    compression: str,
    energy_start: float,
    energy_end: float,
    weighting: str,
    buffers: str,
) -> Method:
    """Return the method.

    Args:
        name: as it appears in records.
        distillation_weight: of both divergences.
        hidden_weight: of the hidden terms.
        kl_reduction: ``batchmean`` or ``elementwise_mean``, C times weaker (D15).
        detach_teacher: whether teachers and A are constants (D15).
        max_norm: of each network's gradient.
        architecture: of the mentee; None for the group's first, CNN-4 in HtC groups.
        mentee_lr: learning rate of the mentee; None for the clients'.
        compression: ``svd``, ``updates``, ``htfllib_svd`` or ``none`` (D17), see `Compression`.
        energy_start: E_0.
        energy_end: E_T.
        weighting: ``uniform`` or ``samples``, of the mean.
        buffers: ``average`` or ``ignore`` batch-normalisation statistics (D5).
    """
    how = Compression(compression, energy_start, energy_end)
    to_mentor, to_mentee = (
        AdaptiveDistillation(MENTEE, who, kl_reduction, detach_teacher) for who in ("model", "auxiliary")
    )
    return Method(
        name,
        objective(
            mentee_cross_entropy=(AuxiliaryCrossEntropy(MENTEE), 1.0),
            distillation=(to_mentor, distillation_weight),
            mentee_distillation=(to_mentee, distillation_weight),
            hidden=(HiddenDistillation(detach_teacher), hidden_weight),
        ),
        auxiliary={MENTEE: SmallModel(architecture, None, mentee_lr), HIDDEN_MAP: HiddenMap()},
        forward_rule=WithAuxiliary(MENTEE),
        callbacks=[GradientClipping(max_norm)],
        channels={
            MENTEE: Channel(
                CompressedChannel(buffers, how),
                CompressedMean(weighting, buffers, how),
                uncounted=[REFERENCE],  # of updates only: what a client holds from the round before
            )
        },
    )
