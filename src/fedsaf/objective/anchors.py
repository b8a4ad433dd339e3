"""Terms of FedSA beside the pull to the anchors: a margin between classes, and a classifier that fits the anchors.

Both act from round 0, since every class has an anchor. Dimension letters: B batch, d feature dimension, C classes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fedsaf.core.types import StepView
from fedsaf.prototypes.trainable import margin_contrastive


class MarginContrast:
    """Features nearer to their own anchor than to any other by a margin; see `margin_contrastive`, mean over the batch.

    Args:
        anchors: channel of the anchors.
        margin: name of the margin g in ``scratch``, see `fedsaf.exchange.anchors.AnchorMargin`.
    """

    def __init__(self, anchors: str, margin: str) -> None:
        self.anchors, self.margin = anchors, margin

    def __call__(self, view: StepView) -> Tensor:
        """Return ``CE(-(|z_j - A^c| + g [c = y_j]), y_j)``, a scalar > 0 in float32 whatever the precision of z."""
        with torch.autocast(view.z.device.type, enabled=False):
            anchors = view.received[self.anchors].values
            return margin_contrastive(view.z.float(), view.y, anchors, view.scratch[self.margin])


class AnchorCalibration:
    """The client's own head must classify the anchors: ``CE(h_i(A^c), c)``, mean over all C classes.

    Args:
        anchors: channel of the anchors.
    """

    def __init__(self, anchors: str) -> None:
        self.anchors = anchors

    def __call__(self, view: StepView) -> Tensor:
        """Return a scalar >= 0; the gradient reaches the head alone."""
        anchors = view.received[self.anchors].values
        return F.cross_entropy(view.model.head(anchors).float(), torch.arange(len(anchors), device=anchors.device))
