"""Arithmetic, comparisons, conversions and other functions of elements."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from support.aten_calls.drawing import Drawn, elements, numbers, of_one, some
from support.one_call import tensor


@st.composite
def arithmetic(draw: st.DrawFn, alpha: bool, scalar: bool, integers: bool = True) -> Drawn:
    x = draw(elements())
    spread = [draw(st.sampled_from([1, n])) for n in x.shape][draw(st.integers(0, x.dim())) :]
    other = draw(numbers) if scalar or draw(some) else tensor(*spread, seed=5)
    if integers and draw(some):
        x = x.long()
        other = other.long() if isinstance(other, Tensor) else int(other)
    return Drawn({"self": x, "other": other} | ({"alpha": 1} if alpha else {}))


@st.composite
def of_numbers(draw: st.DrawFn) -> Tensor:
    """Numbers, whole numbers or truths."""
    x = draw(elements())
    kind = draw(st.sampled_from(["float", "int", "bool"]))
    return x if kind == "float" else x.long() if kind == "int" else x > 0


def whole(x: Tensor) -> Tensor:
    """Whole numbers by which one can divide."""
    return torch.where(x.long() == 0, 1, x.long())


@st.composite
def of_two(draw: st.DrawFn, scalar: bool, kinds: str = "float int", other: str = "other") -> Drawn:
    x = draw(elements())
    spread = [draw(st.sampled_from([1, n])) for n in x.shape][draw(st.integers(0, x.dim())) :]
    kind = draw(st.sampled_from(kinds.split()))
    y: Tensor | float = draw(numbers) if scalar else tensor(*spread, seed=5) * 2
    if kind != "float":
        x = whole(x) if kind == "int" else x > 0
        if isinstance(y, Tensor):
            y = whole(y) if kind == "int" else y > 0
        else:
            y = int(y) or 1 if kind == "int" else y > 0
    if not scalar and draw(some):
        x, y = y, x  # the first is repeated
    return Drawn({"self": x, other: y})


@st.composite
def power(draw: st.DrawFn, first: bool, second: bool) -> Drawn:
    x = draw(elements()).abs() + 0.1
    y: Any = tensor(*x.shape, seed=1) if second else draw(st.sampled_from([2, 0.5, -1, 3]))
    return Drawn({"self": x if first else 1.5, "exponent": y})


@st.composite
def choice(draw: st.DrawFn, first: bool, second: bool) -> Drawn:
    x = draw(elements())
    other = tensor(*x.shape[draw(st.integers(0, x.dim())) :], seed=1)
    return Drawn({
        "condition": x > 0, "self": other if first else 1.5, "other": x if second else -2.0
    })  # fmt: skip


@st.composite
def masked(draw: st.DrawFn, scalar: bool) -> Drawn:
    x = draw(elements())
    value = float("-inf") if scalar else torch.tensor(2.5, dtype=x.dtype)
    return Drawn({"self": x, "mask": tensor(*x.shape[1:], seed=1) > 0, "value": value})


def of_some(name: str = "self", positive: bool = False) -> st.SearchStrategy[Drawn]:
    shift = 20 if positive else 0
    return elements().map(lambda x: Drawn({name: x + shift}))


def converted(name: str, **further: Any) -> st.SearchStrategy[Drawn]:
    kinds = st.sampled_from([torch.float32, torch.int64, torch.int32, torch.bool])
    return st.tuples(of_numbers(), kinds).map(
        lambda pair: Drawn({name: pair[0], "dtype": pair[1], **further})
    )


NO_ZERO = "float int"
COMPARED = "float int bool"
_TWO = {
    "remainder": NO_ZERO, "fmod": NO_ZERO, "eq": COMPARED, "ne": COMPARED, "lt": NO_ZERO,
    "le": NO_ZERO, "gt": NO_ZERO, "ge": NO_ZERO, "bitwise_and": "int bool",
    "bitwise_or": "int bool", "bitwise_xor": "int bool",
}  # fmt: skip
_ONE_OVERLOAD = {
    "minimum": NO_ZERO, "maximum": NO_ZERO, "logical_and": COMPARED, "logical_or": COMPARED,
    "logical_xor": COMPARED, "atan2": "float",
}  # fmt: skip
_POSITIVE = ("log", "log1p", "log2", "log10", "sqrt", "rsqrt", "reciprocal")
_ANY = (
    "abs sign floor ceil trunc exp expm1 exp2 sin cos tan atan sinh cosh erf isnan isinf "
    "logical_not round"
).split()


def _binary(name: str, alpha: bool) -> dict[str, st.SearchStrategy[Drawn]]:
    whole = name != "div"  # whole numbers divide to fractions
    return {
        f"aten.{name}.Tensor": arithmetic(alpha, scalar=False, integers=whole),
        f"aten.{name}.Scalar": arithmetic(alpha, scalar=True, integers=whole),
    }


CALLS: dict[str, st.SearchStrategy[Drawn]] = {
    **_binary("add", alpha=True),
    **_binary("sub", alpha=True),
    **_binary("mul", alpha=False),
    **_binary("div", alpha=False),
    "aten.neg.default": st.one_of(of_one(), of_one().map(
        lambda drawn: Drawn({"self": drawn.named["self"].long()})
    )),
    **{f"aten.{name}.Tensor": of_two(False, kinds) for name, kinds in _TWO.items()},
    **{f"aten.{name}.Scalar": of_two(True, kinds) for name, kinds in _TWO.items()},
    **{f"aten.{name}.default": of_two(False, kinds) for name, kinds in _ONE_OVERLOAD.items()},
    **{f"aten.{name}.default": of_some(positive=True) for name in _POSITIVE},
    **{f"aten.{name}.default": of_some() for name in _ANY},
    "aten.floor_divide.default": of_two(False, NO_ZERO),
    "aten.floor_divide.Scalar": of_two(True, NO_ZERO),
    "aten.bitwise_not.default": of_numbers()
    .filter(lambda x: x.dtype != torch.float64)
    .map(lambda x: Drawn({"self": x})),
    "aten.__and__.Tensor": of_two(False, "int bool"),
    "aten.__or__.Tensor": of_two(False, "int bool"),
    "aten.div.Tensor_mode": of_two(False, NO_ZERO).map(
        lambda d: Drawn(d.named | {"rounding_mode": "floor"})
    ),
    "aten.div.Scalar_mode": of_two(True, NO_ZERO).map(
        lambda d: Drawn(d.named | {"rounding_mode": "floor"})
    ),
    "aten.pow.Tensor_Tensor": power(True, True),
    "aten.pow.Tensor_Scalar": power(True, False),
    "aten.pow.Scalar": power(False, True),
    "aten.clamp_min.default": of_some().map(lambda d: Drawn(d.named | {"min": -0.5})),
    "aten.clamp_max.default": of_some().map(lambda d: Drawn(d.named | {"max": 0.5})),
    "aten.clamp_min.Tensor": of_two(False, "float", "min"),
    "aten.clamp_max.Tensor": of_two(False, "float", "max"),
    "aten.where.self": choice(True, True),
    "aten.where.ScalarSelf": choice(False, True),
    "aten.where.ScalarOther": choice(True, False),
    "aten.where.Scalar": choice(False, False),
    "aten.masked_fill.Scalar": masked(True),
    "aten.masked_fill.Tensor": masked(False),
    "aten.rsub.Scalar": of_two(True, NO_ZERO).map(lambda d: Drawn(d.named | {"alpha": 1})),
    "aten.rsub.Tensor": of_two(False, NO_ZERO).map(lambda d: Drawn(d.named | {"alpha": 1})),
    "aten.to.dtype": converted("self"),
    "aten._to_copy.default": converted("self"),
    "prims.convert_element_type.default": converted("a"),
    "aten.type_as.default": of_numbers().map(
        lambda x: Drawn({"self": x, "other": torch.ones(2, dtype=torch.int64)})
    ),
}  # fmt: skip
