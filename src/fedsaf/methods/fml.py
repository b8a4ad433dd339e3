"""FML (Shen et al., 2020): every client trains its private model and a small shared one, which teach each other.

A round: the client receives the small model; with p = softmax(private) and q = softmax(small) the private model
minimises a CE(p) + (1 - a) KL(q || p), the small one b CE(q) + (1 - b) KL(p || q), each network's gradient clipped. It
sends the small model; the server averages. The private model answers.

Travels: the small model (the group's first architecture with a linear head), both ways. Register entries: D5, D15.
"""

from __future__ import annotations

from fedsaf.federation.method import Method
from fedsaf.federation.scopes import AUXILIARY
from fedsaf.losses.objective import objective
from fedsaf.methods.auxiliary_model import (
    AuxiliaryCrossEntropy,
    Distillation,
    GradientClipping,
    SmallModel,
    WithAuxiliary,
)
from fedsaf.methods.averaging import averaged

SMALL = "auxiliary"


def fml(
    name: str,
    a: float,
    b: float,
    kl_reduction: str,
    detach_teacher: bool,
    max_norm: float,
    architecture: str | None,
    feature_dim: int | None,
    small_lr: float | None,
    weighting: str,
    buffers: str,
) -> Method:
    """Return the method.

    Args:
        name: as it appears in records.
        a: in [0, 1], share of the private model's own cross-entropy.
        b: in [0, 1], share of the small model's.
        kl_reduction: ``batchmean`` or ``elementwise_mean``, C times weaker (D15).
        detach_teacher: whether the teacher is a constant (D15).
        max_norm: of each network's gradient.
        architecture: of the small model; None for the group's first, CNN-4 in HtC groups.
        feature_dim: of the small model; None for the clients' d.
        small_lr: learning rate of the small model; None for the clients'.
        weighting: ``uniform`` or ``samples``, of the mean.
        buffers: ``average`` or ``ignore`` batch-normalisation statistics (D5).
    """
    to_private, to_small = (Distillation(SMALL, who, kl_reduction, detach_teacher) for who in ("model", "auxiliary"))
    return Method(
        name,
        objective(
            a,
            auxiliary_cross_entropy=(AuxiliaryCrossEntropy(SMALL), b),
            distillation=(to_private, 1 - a),
            auxiliary_distillation=(to_small, 1 - b),
        ),
        auxiliary={SMALL: SmallModel(architecture, feature_dim, small_lr)},
        forward_rule=WithAuxiliary(SMALL),
        callbacks=[GradientClipping(max_norm)],
        channels={SMALL: averaged(f"{AUXILIARY}{SMALL}", weighting, buffers)},
    )
