"""Stochastic depth: Huang, Sun, Liu, Sedra & Weinberger, "Deep networks with stochastic depth"
(2016), arXiv:1603.09382.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class StochasticDepth(nn.Dropout):
    """Drops the whole branch of a sample with probability ``p``, else divides it by ``1 - p``.

    The mask is PyTorch's dropout of a one for each sample. Every level therefore draws it, and
    switches it off for the check, as it does for ``nn.Dropout``.
    """

    def forward(self, branch: Tensor) -> Tensor:
        """[batch, ...] -> the same shape; the branch itself outside training, or if p is 0."""
        if not self.training or self.p == 0.0:
            return branch
        ones = branch.new_ones((branch.shape[0],) + (1,) * (branch.dim() - 1))
        return branch * functional.dropout(ones, self.p, training=True)
