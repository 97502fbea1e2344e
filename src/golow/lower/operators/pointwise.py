"""A function of each element of several values, which broadcast: arithmetic, comparisons, logic,
choices and conversions, of numbers, integers and truth values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from golow.lower.ir.graph import Argument, Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call

Operand = Ref | bool | int | float

Function = Literal[
    "add",
    "subtract",
    "multiply",
    "divide",
    "floor_divide",
    "remainder",
    "fmod",
    "power",
    "minimum",
    "maximum",
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
    "logical_not",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "bitwise_not",
    "choose",
    "convert",
    "absolute",
    "sign",
    "floor",
    "ceiling",
    "round",
    "truncate",
    "exponential",
    "exponential_minus_one",
    "power_of_two",
    "logarithm",
    "logarithm_of_one_plus",
    "logarithm_2",
    "logarithm_10",
    "square_root",
    "reciprocal_square_root",
    "reciprocal",
    "sine",
    "cosine",
    "tangent",
    "arc_tangent",
    "arc_tangent_2",
    "hyperbolic_sine",
    "hyperbolic_cosine",
    "error_function",
    "is_nan",
    "is_infinite",
]

# Torch's names.
FUNCTIONS: dict[Function, str] = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "true_divide",
    "floor_divide": "floor_divide",
    "remainder": "remainder",
    "fmod": "fmod",
    "power": "pow",
    "minimum": "minimum",
    "maximum": "maximum",
    "equal": "eq",
    "not_equal": "ne",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
    "logical_and": "logical_and",
    "logical_or": "logical_or",
    "logical_xor": "logical_xor",
    "logical_not": "logical_not",
    "bitwise_and": "bitwise_and",
    "bitwise_or": "bitwise_or",
    "bitwise_xor": "bitwise_xor",
    "bitwise_not": "bitwise_not",
    "choose": "where",
    "convert": "clone",
    "absolute": "abs",
    "sign": "sign",
    "floor": "floor",
    "ceiling": "ceil",
    "round": "round",
    "truncate": "trunc",
    "exponential": "exp",
    "exponential_minus_one": "expm1",
    "power_of_two": "exp2",
    "logarithm": "log",
    "logarithm_of_one_plus": "log1p",
    "logarithm_2": "log2",
    "logarithm_10": "log10",
    "square_root": "sqrt",
    "reciprocal_square_root": "rsqrt",
    "reciprocal": "reciprocal",
    "sine": "sin",
    "cosine": "cos",
    "tangent": "tan",
    "arc_tangent": "atan",
    "arc_tangent_2": "atan2",
    "hyperbolic_sine": "sinh",
    "hyperbolic_cosine": "cosh",
    "error_function": "erf",
    "is_nan": "isnan",
    "is_infinite": "isinf",
}


class Pointwise(Operator, frozen=True, kw_only=True):
    """function(*operands), element by element, converted to ``dtype``. Operands are values, which
    broadcast as in PyTorch, or numbers; at least one is a value. They are computed with in torch's
    common type of all of them."""

    function: Function
    operands: tuple[Operand, ...]
    dtype: str

    @staticmethod
    def meaning(function: Function, operands: Sequence[Any], dtype: str) -> Tensor:
        import torch

        operation = getattr(torch, FUNCTIONS[function])
        result: Tensor = operation(*_operands(function, operands))
        return result.to(getattr(torch, dtype))


def _operands(function: Function, operands: Sequence[Any]) -> list[Any]:
    """Some of torch's functions take tensors alone."""
    import torch

    if function in ("minimum", "maximum", "logical_and", "logical_or", "logical_xor"):
        like = next(item for item in operands if isinstance(item, torch.Tensor))
        return [
            item if isinstance(item, torch.Tensor) else torch.as_tensor(item, dtype=like.dtype)
            for item in operands
        ]
    return list(operands)


def computed_in(operands: Sequence[Operand], dtypes: Sequence[str]) -> str:
    """The type in which a level computes: "float32", "int64" or "bool". dtypes: of those operands
    that are values."""
    numbers = [item for item in operands if not isinstance(item, Ref)]
    if any(dtype.startswith(("float", "bfloat")) for dtype in dtypes):
        return "float32"
    if any(isinstance(item, float) for item in numbers):
        return "float32"
    whole = all(dtype == "bool" for dtype in dtypes)
    if whole and all(isinstance(item, bool) for item in numbers):
        return "bool"
    return "int64"


# Functions whose result is not of the type of their operands, and that compute with floats.
OF_FLOATS = frozenset(
    "divide exponential exponential_minus_one power_of_two logarithm logarithm_of_one_plus "
    "logarithm_2 logarithm_10 square_root reciprocal_square_root reciprocal sine cosine tangent "
    "arc_tangent arc_tangent_2 hyperbolic_sine hyperbolic_cosine error_function".split()
)


# ---------------------------------------------------------------- spellings


def pointwise(call: Call, function: Function, *names: str) -> Pointwise | None:
    """A call whose arguments of these names are the operands."""
    if "alpha" in call.names and call.given("alpha") != 1:
        return None
    operands = tuple(_operand(call, name) for name in names)
    if all(operand is None or not isinstance(operand, Ref) for operand in operands):
        return None
    found = tuple(operand for operand in operands if operand is not None)
    if len(found) != len(names):
        return None
    return Pointwise(function=function, operands=found, dtype=call.output().dtype)


def _operand(call: Call, name: str) -> Operand | None:
    item: Argument = call.given(name)
    if isinstance(item, Ref | bool | int | float):
        return item
    return call.number(name)


def divided(call: Call) -> Pointwise | None:
    """``div`` with a rounding mode."""
    mode = call.given("rounding_mode")
    if mode is None:
        return pointwise(call, "divide", "self", "other")
    if mode == "floor":
        return pointwise(call, "floor_divide", "self", "other")
    return None


def rounded(call: Call) -> Pointwise | None:
    """``round`` to whole numbers."""
    return pointwise(call, "round", "self")


def converted(call: Call) -> Pointwise | None:
    """A conversion to another type."""
    name = "self" if "self" in call.names else "a"
    return Pointwise(function="convert", operands=(call.ref(name),), dtype=call.output().dtype)


def reversed_subtraction(call: Call) -> Pointwise | None:
    """``rsub``: other - self."""
    return pointwise(call, "subtract", "other", "self")


def masked(call: Call) -> Pointwise | None:
    """``masked_fill(self, mask, value)``."""
    return pointwise(call, "choose", "mask", "value", "self")


def of_two(call: Call, function: Function) -> Pointwise | None:
    """A function of ``self`` and ``other``."""
    return pointwise(call, function, "self", "other")


def of_one(call: Call, function: Function) -> Pointwise | None:
    """A function of ``self``."""
    return pointwise(call, function, "self")


def power(call: Call) -> Pointwise | None:
    """``pow(self, exponent)``, either of which may be a number."""
    return pointwise(call, "power", "self", "exponent")


def bounded(call: Call, function: Function, name: str) -> Pointwise | None:
    """``clamp_min`` and ``clamp_max``."""
    return pointwise(call, function, "self", name)


def choice(call: Call) -> Pointwise | None:
    """``where(condition, self, other)``."""
    return pointwise(call, "choose", "condition", "self", "other")


_BINARY: dict[Function, tuple[str, tuple[str, ...]]] = {
    "remainder": ("remainder", ("Tensor", "Scalar")),
    "fmod": ("fmod", ("Tensor", "Scalar")),
    "floor_divide": ("floor_divide", ("default", "Scalar")),
    "minimum": ("minimum", ("default",)),
    "maximum": ("maximum", ("default",)),
    "equal": ("eq", ("Tensor", "Scalar")),
    "not_equal": ("ne", ("Tensor", "Scalar")),
    "less": ("lt", ("Tensor", "Scalar")),
    "less_equal": ("le", ("Tensor", "Scalar")),
    "greater": ("gt", ("Tensor", "Scalar")),
    "greater_equal": ("ge", ("Tensor", "Scalar")),
    "logical_and": ("logical_and", ("default",)),
    "logical_or": ("logical_or", ("default",)),
    "logical_xor": ("logical_xor", ("default",)),
    "bitwise_and": ("bitwise_and", ("Tensor", "Scalar")),
    "bitwise_or": ("bitwise_or", ("Tensor", "Scalar")),
    "bitwise_xor": ("bitwise_xor", ("Tensor", "Scalar")),
    "arc_tangent_2": ("atan2", ("default",)),
}
_UNARY: tuple[Function, ...] = (
    "logical_not",
    "bitwise_not",
    "absolute",
    "sign",
    "floor",
    "ceiling",
    "truncate",
    "exponential",
    "exponential_minus_one",
    "power_of_two",
    "logarithm",
    "logarithm_of_one_plus",
    "logarithm_2",
    "logarithm_10",
    "square_root",
    "reciprocal_square_root",
    "reciprocal",
    "sine",
    "cosine",
    "tangent",
    "arc_tangent",
    "hyperbolic_sine",
    "hyperbolic_cosine",
    "error_function",
    "is_nan",
    "is_infinite",
)

SPELLINGS = {
    **{
        f"aten.{name}.{kind}": partial(of_two, function=function)
        for function, (name, kinds) in _BINARY.items()
        for kind in kinds
    },
    **{
        f"aten.{FUNCTIONS[function]}.default": partial(of_one, function=function)
        for function in _UNARY
    },
    "aten.__and__.Tensor": partial(of_two, function="bitwise_and"),
    "aten.__or__.Tensor": partial(of_two, function="bitwise_or"),
    "aten.div.Tensor_mode": divided,
    "aten.div.Scalar_mode": divided,
    "aten.pow.Tensor_Tensor": power,
    "aten.pow.Tensor_Scalar": power,
    "aten.pow.Scalar": power,
    "aten.clamp_min.default": partial(bounded, function="maximum", name="min"),
    "aten.clamp_min.Tensor": partial(bounded, function="maximum", name="min"),
    "aten.clamp_max.default": partial(bounded, function="minimum", name="max"),
    "aten.clamp_max.Tensor": partial(bounded, function="minimum", name="max"),
    "aten.where.self": choice,
    "aten.where.ScalarSelf": choice,
    "aten.where.ScalarOther": choice,
    "aten.where.Scalar": choice,
    "aten.masked_fill.Scalar": masked,
    "aten.masked_fill.Tensor": masked,
    "aten.rsub.Scalar": reversed_subtraction,
    "aten.rsub.Tensor": reversed_subtraction,
    "aten.round.default": rounded,
    "aten.to.dtype": converted,
    "aten._to_copy.default": converted,
    "aten.type_as.default": converted,
    "prims.convert_element_type.default": converted,
}
