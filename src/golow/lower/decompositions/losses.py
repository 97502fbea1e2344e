"""A loss whose definition in PyTorch's table is wrong. In training PyTorch uses it while it
captures, before golow sees the loss, unless `corrected` gives PyTorch another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey

aten = torch.ops.aten

NONE, MEAN, SUM = range(3)  # ATen's numbers


def _multilabel_margin(self: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """The loss, and which classes are targets.

    self and target: [N, C]; the targets of a row end at the first -1. PyTorch's definition also
    compares with class 0 for each target that is missing.
    """
    classes = self.shape[1]
    steps = torch.arange(classes)
    ends = torch.where(target == -1, steps, classes)
    exists = steps < aten.amin.default(ends, [1], True)
    chosen = torch.where(exists, target, -1).unsqueeze(2)
    is_target = aten.amax.default((chosen == steps).to(torch.int64), [1])  # [N, C]
    values = aten.gather.default(self, 1, torch.where(exists, target, 0)).unsqueeze(2)
    lack = aten.clamp_min.default(1 - values + self.unsqueeze(1), 0.0)  # [N, targets, C]
    counts = torch.logical_and(exists.unsqueeze(2), is_target.unsqueeze(1) == 0)
    rows = torch.where(counts, lack, 0.0).sum([1, 2]) / classes
    found = rows if reduction == NONE else rows.mean() if reduction == MEAN else rows.sum()
    return found, is_target.to(self.dtype)


def multilabel_margin(self: Tensor, target: Tensor, reduction: int) -> Any:
    """``multilabel_margin_loss_forward`` of a batch."""
    return _multilabel_margin(self, target, reduction) if self.dim() == 2 else NotImplemented


def _differentiable(self: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """Loss of a batch, or of one sample: [C]."""
    if self.dim() == 2:
        return _multilabel_margin(self, target, reduction)
    found, is_target = _multilabel_margin(self.unsqueeze(0), target.unsqueeze(0), reduction)
    return found.reshape(()), is_target.squeeze(0)


@contextmanager
def corrected() -> Iterator[None]:
    """Within the block PyTorch differentiates the loss by golow's definition."""
    operator = aten.multilabel_margin_loss_forward.default
    kernels = operator.py_kernels
    kept = kernels[DispatchKey.Autograd]
    try:
        kernels[DispatchKey.Autograd] = _differentiable
        operator._dispatch_cache.clear()
        yield
    finally:
        kernels[DispatchKey.Autograd] = kept
        operator._dispatch_cache.clear()


DEFINITIONS = {
    "aten.multilabel_margin_loss_forward.default": multilabel_margin,
}
