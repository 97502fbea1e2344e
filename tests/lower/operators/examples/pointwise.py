"""Examples of comparisons, conversions and other functions of elements."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from golow.lower.operators.pointwise import Pointwise
from support.graphs.drawn_arguments import IMAGE, Drawn, X, elements, numbers, some
from support.graphs.one_call import tensor

RECORDS = (Pointwise(function="power", operands=(X, 2.0, True), dtype="float32"),)


@st.composite
def _of_numbers(draw: st.DrawFn) -> Tensor:
    """Numbers, whole numbers or truths."""
    x = draw(elements())
    kind = draw(st.sampled_from(["float", "int", "bool"]))
    return x if kind == "float" else x.long() if kind == "int" else x > 0


def _whole(x: Tensor) -> Tensor:
    """Whole numbers by which one can divide."""
    return torch.where(x.long() == 0, 1, x.long())


@st.composite
def _of_two(draw: st.DrawFn, scalar: bool, kinds: str = "float int", other: str = "other") -> Drawn:
    x = draw(elements())
    spread = [draw(st.sampled_from([1, n])) for n in x.shape][draw(st.integers(0, x.dim())) :]
    kind = draw(st.sampled_from(kinds.split()))
    y: Tensor | float = draw(numbers) if scalar else tensor(*spread, seed=5) * 2
    if kind != "float":
        x = _whole(x) if kind == "int" else x > 0
        if isinstance(y, Tensor):
            y = _whole(y) if kind == "int" else y > 0
        else:
            y = int(y) or 1 if kind == "int" else y > 0
    if not scalar and draw(some):
        x, y = y, x  # the first is repeated
    return Drawn({"self": x, other: y})


@st.composite
def _power(draw: st.DrawFn, first: bool, second: bool) -> Drawn:
    x = draw(elements()).abs() + 0.1
    y: Any = tensor(*x.shape, seed=1) if second else draw(st.sampled_from([2, 0.5, -1, 3]))
    return Drawn({"self": x if first else 1.5, "exponent": y})


@st.composite
def _choice(draw: st.DrawFn, first: bool, second: bool) -> Drawn:
    x = draw(elements())
    other = tensor(*x.shape[draw(st.integers(0, x.dim())) :], seed=1)
    return Drawn({
        "condition": x > 0, "self": other if first else 1.5, "other": x if second else -2.0
    })  # fmt: skip


@st.composite
def _masked(draw: st.DrawFn, scalar: bool) -> Drawn:
    x = draw(elements())
    value = float("-inf") if scalar else torch.tensor(2.5, dtype=x.dtype)
    return Drawn({"self": x, "mask": tensor(*x.shape[1:], seed=1) > 0, "value": value})


def _of_some(positive: bool = False) -> st.SearchStrategy[Drawn]:
    shift = 20 if positive else 0
    return elements().map(lambda x: Drawn({"self": x + shift}))


def _converted(name: str) -> st.SearchStrategy[Drawn]:
    kinds = st.sampled_from([torch.float32, torch.int64, torch.int32, torch.bool])
    return st.tuples(_of_numbers(), kinds).map(
        lambda pair: Drawn({name: pair[0], "dtype": pair[1]})
    )


_NO_TRUTHS = "float int"
_COMPARED = "float int bool"
_TWO = {
    "remainder": _NO_TRUTHS, "fmod": _NO_TRUTHS, "eq": _COMPARED, "ne": _COMPARED,
    "lt": _NO_TRUTHS, "le": _NO_TRUTHS, "gt": _NO_TRUTHS, "ge": _NO_TRUTHS,
    "bitwise_and": "int bool", "bitwise_or": "int bool", "bitwise_xor": "int bool",
}  # fmt: skip
_ONE_OVERLOAD = {
    "minimum": _NO_TRUTHS, "maximum": _NO_TRUTHS, "logical_and": _COMPARED,
    "logical_or": _COMPARED, "logical_xor": _COMPARED, "atan2": "float",
}  # fmt: skip
_POSITIVE = ("log", "log1p", "log2", "log10", "sqrt", "rsqrt", "reciprocal")
_ANY = (
    "abs sign floor ceil trunc exp expm1 exp2 sin cos tan atan sinh cosh erf isnan isinf "
    "logical_not round"
).split()

CALLS = {
    **{f"aten.{name}.Tensor": _of_two(False, kinds) for name, kinds in _TWO.items()},
    **{f"aten.{name}.Scalar": _of_two(True, kinds) for name, kinds in _TWO.items()},
    **{f"aten.{name}.default": _of_two(False, kinds) for name, kinds in _ONE_OVERLOAD.items()},
    **{f"aten.{name}.default": _of_some(positive=True) for name in _POSITIVE},
    **{f"aten.{name}.default": _of_some() for name in _ANY},
    "aten.floor_divide.default": _of_two(False, _NO_TRUTHS),
    "aten.floor_divide.Scalar": _of_two(True, _NO_TRUTHS),
    "aten.bitwise_not.default": _of_numbers()
    .filter(lambda x: x.dtype != torch.float64)
    .map(lambda x: Drawn({"self": x})),
    "aten.__and__.Tensor": _of_two(False, "int bool"),
    "aten.__or__.Tensor": _of_two(False, "int bool"),
    "aten.div.Tensor_mode": _of_two(False, _NO_TRUTHS).map(
        lambda d: Drawn(d.named | {"rounding_mode": "floor"})
    ),
    "aten.div.Scalar_mode": _of_two(True, _NO_TRUTHS).map(
        lambda d: Drawn(d.named | {"rounding_mode": "floor"})
    ),
    "aten.pow.Tensor_Tensor": _power(True, True),
    "aten.pow.Tensor_Scalar": _power(True, False),
    "aten.pow.Scalar": _power(False, True),
    "aten.clamp_min.default": _of_some().map(lambda d: Drawn(d.named | {"min": -0.5})),
    "aten.clamp_max.default": _of_some().map(lambda d: Drawn(d.named | {"max": 0.5})),
    "aten.clamp_min.Tensor": _of_two(False, "float", "min"),
    "aten.clamp_max.Tensor": _of_two(False, "float", "max"),
    "aten.where.self": _choice(True, True),
    "aten.where.ScalarSelf": _choice(False, True),
    "aten.where.ScalarOther": _choice(True, False),
    "aten.where.Scalar": _choice(False, False),
    "aten.masked_fill.Scalar": _masked(True),
    "aten.masked_fill.Tensor": _masked(False),
    "aten.rsub.Scalar": _of_two(True, _NO_TRUTHS).map(lambda d: Drawn(d.named | {"alpha": 1})),
    "aten.rsub.Tensor": _of_two(False, _NO_TRUTHS).map(lambda d: Drawn(d.named | {"alpha": 1})),
    "aten.to.dtype": _converted("self"),
    "aten._to_copy.default": _converted("self"),
    "prims.convert_element_type.default": _converted("a"),
    "aten.type_as.default": _of_numbers().map(
        lambda x: Drawn({"self": x, "other": torch.ones(2, dtype=torch.int64)})
    ),
}

LEFT = {"rounding towards zero": ("aten.div.Tensor_mode", IMAGE, IMAGE, {"rounding_mode": "trunc"})}
