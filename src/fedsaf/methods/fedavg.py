"""FedAvg (McMahan et al., AISTATS 2017), Algorithm 1, and LG-FedAvg (Liang et al., 2020), which shares a part alone.

A round: the client overwrites the shared part of its model by the server's, trains everything with cross-entropy, and
sends the part back; the server averages what comes, sum_i n_i w_i / sum_i n_i over the participants. Clients are
evaluated with the server's part right after the download.

Travels: the part, both ways: the whole model with its batch-normalisation statistics, or the classifier, C (d + 1)
numbers. Register entries: D5.
"""

from __future__ import annotations

from fedsaf.core.checks import one_of
from fedsaf.federation.method import Method
from fedsaf.losses.objective import objective
from fedsaf.methods.averaging import averaged

REQUIRES = {"all": ("one_architecture", "one_head"), "backbone": ("one_architecture",), "head": ("one_head",)}


def fedavg(name: str, scope: str, weighting: str, buffers: str) -> Method:
    """Return the method.

    Args:
        name: as it appears in records.
        scope: what is shared: ``all``, ``head`` (LG-FedAvg) or ``backbone`` (Homo-Shared of FedSAF, Fig. 1).
        weighting: ``samples`` or ``uniform``, of the mean.
        buffers: ``average`` or ``ignore`` batch-normalisation statistics (D5).
    """
    channels = {"parameters" if scope == "all" else scope: averaged(scope, weighting, buffers)}
    return Method(name, objective(), REQUIRES[one_of("scope", scope, REQUIRES)], channels=channels)
