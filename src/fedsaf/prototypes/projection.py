"""Fixed linear maps between spaces of different width that keep lengths and angles as well as their widths allow.

Dimension letters: v input width, w output width.
"""

from __future__ import annotations

from torch import Generator, Tensor

from fedsaf.prototypes.hypersphere import orthogonal


def semi_orthogonal(width_in: int, width_out: int, generator: Generator) -> Tensor:
    """Return a (v, w) matrix with orthonormal rows for v <= w, orthonormal columns for v >= w, in float32.

    >>> import torch
    >>> Q = semi_orthogonal(2, 3, torch.Generator().manual_seed(0))
    >>> torch.allclose(Q @ Q.T, torch.eye(2), atol=1e-6)
    True
    """
    if width_in <= width_out:
        return orthogonal(width_in, width_out, generator).float()
    return orthogonal(width_out, width_in, generator).T.contiguous().float()
