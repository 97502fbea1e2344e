"""Attention of heads whose elements are not adjacent in memory, as where a network has its channels
before its tokens. For those PyTorch has no kernel, and would take the call apart in training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode


@contextmanager
def heads_adjacent() -> Iterator[None]:
    """Within the block attention reads copies of such heads, and stays one call. No level needs the
    copies: what it captures has no strides."""
    with _Adjacent():
        yield


class _Adjacent(TorchFunctionMode):
    def __torch_function__(
        self, function: Any, types: Any, given: tuple[Any, ...] = (), named: Any = None
    ) -> Any:
        named = dict(named or {})
        if function is functional.scaled_dot_product_attention:
            given = tuple(map(_adjacent, given))
            named = {name: _adjacent(item) for name, item in named.items()}
        return function(*given, **named)


def _adjacent(item: Any) -> Any:
    apart = isinstance(item, Tensor) and item.dim() == 4 and item.stride(-1) != 1
    return item.contiguous() if apart else item
