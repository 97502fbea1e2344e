"""Linear recurrences of first order as loops over their steps."""

from __future__ import annotations

import torch
from torch import Tensor


def recurrence(decay: Tensor, x: Tensor, axis: int) -> Tensor:
    """y[t] = decay[t] y[t - 1] + x[t] along an axis, from zero on."""
    found: list[Tensor] = []
    for factor, term in zip(decay.unbind(axis), x.unbind(axis), strict=True):
        found.append(factor * found[-1] + term if found else term)
    return torch.stack(found, axis)


def gradients(gradient: Tensor, decay: Tensor, states: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """The gradients of decay and x. states: what `recurrence` returns."""
    outer, factors, before = (item.unbind(axis) for item in (gradient, decay, states))
    of_x = [outer[-1]]
    for step in range(len(outer) - 2, -1, -1):
        of_x.append(factors[step + 1] * of_x[-1] + outer[step])
    of_x.reverse()
    first = torch.zeros_like(of_x[0])
    of_decay = [first, *(g * y for g, y in zip(of_x[1:], before, strict=False))]
    return torch.stack(of_decay, axis), torch.stack(of_x, axis)
