"""Inputs that a plan can read directly: the fast path of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C._dynamo.guards import TensorGuards

from golow.levels.called.sizes import Size

data_ptr = Tensor.data_ptr  # found once

MOST = 8
"""Sets of inputs that are recognised at most; others are examined in every call."""


class Recognised(NamedTuple):
    """The size, and torch.compile's own check of type, dtype, device, shape, strides and dispatch
    keys; negative and conjugate views, wrapped and traced tensors have other dispatch keys."""

    check: Callable[..., bool]
    size: Size


class ExactInputs:
    """Checks whether inputs have a compiled size and are plain memory.

    Inputs that were examined once are recognised later, in a fifth of the time. sizes: by the
    shapes of all inputs.
    """

    def __init__(
        self,
        sizes: Mapping[tuple[torch.Size, ...], Size],
        dtypes: Sequence[torch.dtype],
        device: torch.device,
    ) -> None:
        self._sizes, self._dtypes, self._device = sizes, dtypes, device
        self._number = len(dtypes)
        self._recognised: tuple[Recognised, ...] = ()

    def __call__(self, given: Sequence[Any]) -> tuple[Size, list[int]] | None:
        """Return the size of these inputs and their addresses; None if a plan cannot read each as
        it is."""
        if len(given) != self._number:
            return None
        for check, size in self._recognised:
            if check(*given):
                return size, list(map(data_ptr, given))
        return self._examined(given)

    def _examined(self, given: Sequence[Any]) -> tuple[Size, list[int]] | None:
        try:
            size = self._sizes.get(tuple([item.shape for item in given]))
            if size is None or not all(map(self._is_plain, given, self._dtypes)):
                return None
            addresses = list(map(data_ptr, given))
        except (AttributeError, RuntimeError):  # not a tensor, or one without plain memory
            return None
        if len(self._recognised) < MOST:
            found = Recognised(_guards(given).check, size)
            if found.check(*given):  # not if one tensor serves as two inputs
                self._recognised += (found,)
        return size, addresses

    def _is_plain(self, item: Any, dtype: torch.dtype) -> bool:
        return (
            type(item) is Tensor
            and item.dtype is dtype
            and item.device == self._device
            and item.is_contiguous()
            and not item.requires_grad
            and not item.is_neg()
            and not item.is_conj()
        )


def _guards(tensors: Sequence[Tensor]) -> TensorGuards:
    sizes: Any = [list(item.shape) for item in tensors]
    strides: Any = [list(item.stride()) for item in tensors]
    return TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
