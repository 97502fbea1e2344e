"""A module in float64, also where its code names another precision."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from golow.lower.ir.float64_default import float64_by_default
from golow.records.errors import GolowError

LOWER = (torch.float32, torch.bfloat16, torch.float16)
CASTS: dict[Any, Callable[..., Tensor]] = dict.fromkeys(
    (Tensor.float, Tensor.half, Tensor.bfloat16), Tensor.double
)


def doubled(tensor: Tensor) -> Tensor:
    """The tensor in float64, or complex128; integers stay."""
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


def copied_in_double(module: nn.Module) -> nn.Module:
    """A copy of the module whose weights are float64 and complex128."""
    copied = copy.deepcopy(module)
    copied._apply(doubled)  # type: ignore[no-untyped-call]
    return copied


class InDouble:
    """A copy of the module. It takes tensors of the module's own types; its outputs are float64."""

    def __init__(self, module: nn.Module) -> None:
        """Raises `GolowError` for a module that cannot be copied."""
        try:
            self.module = copied_in_double(module)
        except Exception as error:  # of the module's own code, or of what Python cannot copy
            raise GolowError(
                f"padding cannot be tried out on a copy of the module: {error}",
                "leave sequence= out, and compile for each length separately.",
            ) from error

    def __call__(self, inputs: Sequence[Tensor]) -> Any:
        """Run it on copies of the inputs."""
        given = [item.clone() if (new := doubled(item)) is item else new for item in inputs]
        with float64_by_default(), torch.no_grad(), _Doubled():
            return self.module(*given)


class _Doubled(TorchFunctionMode):
    """Float64 instead of every lower precision that a call asks for."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        args = tuple(map(_doubled, args))
        named = {name: _doubled(item) for name, item in (kwargs or {}).items()}
        return CASTS.get(function, function)(*args, **named)


def _doubled(item: Any) -> Any:
    if not isinstance(item, torch.dtype):
        return item
    return torch.complex128 if item is torch.complex64 else torch.float64 if item in LOWER else item
