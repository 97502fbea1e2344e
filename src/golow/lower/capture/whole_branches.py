"""Python's choices that a graph cannot make, written as operations on tensors while a model is
captured: ``torch.cond``, and batch norm's average over all batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_map


@contextmanager
def choices_in_graph() -> Iterator[None]:
    """Within the block such choices are traced as arithmetic."""
    cond, forward = torch.cond, _BatchNorm.forward
    torch.cond = _both_branches  # type: ignore[assignment]
    _BatchNorm.forward = _forward(forward)  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.cond = cond
        _BatchNorm.forward = forward  # type: ignore[method-assign]


def _both_branches(
    pred: bool | Tensor,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: Sequence[Any] = (),
) -> Any:
    """Both branches, which torch.cond requires to be pure and of one form, and a selection."""
    if not isinstance(pred, Tensor):
        return (true_fn if pred else false_fn)(*operands)
    chosen = pred.reshape(())
    return tree_map(
        lambda one, other: torch.where(chosen, one, other), true_fn(*operands), false_fn(*operands)
    )


def _forward(plain: Callable[[_BatchNorm, Tensor], Tensor]) -> Any:
    """``_BatchNorm.forward``, also with ``momentum=None``: PyTorch then reads from a tensor how
    many batches there were, and the share of a new one is a Python number."""

    def forward(self: _BatchNorm, x: Tensor) -> Tensor:
        mean, variance, batches = self.running_mean, self.running_var, self.num_batches_tracked
        if self.momentum is not None or not self.training:
            return plain(self, x)
        if mean is None or variance is None or batches is None:
            return plain(self, x)
        self._check_input_dim(x)  # type: ignore[no-untyped-call]
        axes = [axis for axis in range(x.dim()) if axis != 1]
        with torch.no_grad():
            batches.add_(1)
            new_variance, new_mean = torch.var_mean(x, axes)
            for kept, new in ((mean, new_mean), (variance, new_variance)):
                kept.add_((new - kept) / batches)
        return functional.batch_norm(
            x, None, None, self.weight, self.bias, training=True, eps=self.eps
        )

    return forward
