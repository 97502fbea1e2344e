"""Run in double precision what a model constructs in its forward pass: for the reference of the
check.

``module.to(torch.float64)`` changes weights, not code. A mask that the code makes in float32, or a
value that it casts to float32, would leave float32's roundings in the reference. Worse, PyTorch's
attention on a CPU reads a float32 mask beside a float64 query as if it were float64 (torch 2.13).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map

from golow.levels.torch.grouped_products import grouped_product

WITHOUT_DOUBLE = {torch.ops.aten._grouped_mm.default: grouped_product}
LARGEST = torch.finfo(torch.float32).max
DOUBLES = {torch.float32: torch.float64, torch.complex64: torch.complex128}


class InDouble(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within it, an operator gives float64 where it would give float32.

    A cast to float32 keeps all digits. What is made from no floating point tensor has float32's
    values, as at every level, and is held in float64: ``torch.full``, a quotient of whole numbers.
    The least number of the weights' dtype, with which a mask may be filled, needs float64 at once.
    A tensor of the model that is neither parameter nor buffer is read as float64, also through
    views. What is written in place keeps its dtype, and so do bits that are read as another dtype.
    """

    supports_higher_order_operators = True  # they call operators, which come here

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Leave code that a model compiles itself uninspected: flex attention cannot do without its
        compiler, which refuses to work within a mode that wants to see everything."""
        return True

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call the operator with float64 in place of float32."""
        named = dict(kwargs or {})
        if not isinstance(func, torch._ops.OpOverload) or func is torch.ops.aten.view.dtype:
            return func(*args, **named)
        arguments, returns = func._schema.arguments, func._schema.returns
        is_cast = func.overloadpacket is torch.ops.aten.to  # in inference mode; else _to_copy
        is_view = any(value.alias_info and not value.alias_info.is_write for value in returns)
        # In inference mode PyTorch has no view of a tensor that was converted within it, so what
        # reads the view converts. torch.tensor calls lift_fresh, whose result needs no reader.
        if is_view and not is_cast and func is not torch.ops.aten.lift_fresh.default:
            return func(*args, **named)
        if any(map(_is_floating, tree_iter((args, named)))):
            written = {a.name for a in arguments if a.alias_info and a.alias_info.is_write}
            by_place = zip(arguments, args, strict=False)  # some may have no value
            args = tuple(_unless(a.name in written, given) for a, given in by_place)
            named = {name: _unless(name in written, given) for name, given in named.items()}
        elif any(map(_is_beyond_float, tree_iter(args))):
            named = _with_dtype(named, arguments)
        result = WITHOUT_DOUBLE.get(func, func)(*args, **named)
        if any(value.alias_info for value in returns) and not is_cast:
            return result  # what was written
        return tree_map(_doubled, result)


def _unless(written: bool, given: Any) -> Any:
    return given if written else tree_map(_doubled, given)


def _is_floating(value: Any) -> bool:
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def _is_beyond_float(value: Any) -> bool:
    return isinstance(value, float) and LARGEST < abs(value) < math.inf


def _with_dtype(named: dict[str, Any], arguments: Any) -> dict[str, Any]:
    """The named arguments of a call that makes a tensor, with float64 where no dtype is given."""
    takes = any(argument.name == "dtype" for argument in arguments)
    return named | {"dtype": torch.float64} if takes and named.get("dtype") is None else named


def _doubled(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return DOUBLES.get(value, value)
    if isinstance(value, Tensor) and value.dtype in DOUBLES:
        return value.to(DOUBLES[value.dtype])
    return value
