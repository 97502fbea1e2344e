"""Functions of elements as C, which is the same for a CPU and a GPU: a level puts them into its
kernels and states what their names mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from golow.levels.direct.formulas.activation_formulas import derivative, with_activation
from golow.levels.direct.formulas.literals import number
from golow.lower.ir.graph import Node, Ref, Value
from golow.lower.ir.operator import Operator, record_of
from golow.lower.operators.activation import Activate, ActivateBackward
from golow.lower.operators.batch_norm import BatchNormInference
from golow.lower.operators.binary import Binary
from golow.lower.operators.pointwise import OF_FLOATS, Pointwise, computed_in

SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}


class Name(NamedTuple):
    """A value inside the kernel: its C name, the graph's dtype, and the type in which it is, or
    would be, stored."""

    text: str
    dtype: str
    stored: str


class Formula(NamedTuple):
    """C over {0}, {1}, {2}: of floats, and of integers and truth values if that differs."""

    floats: str
    integers: str = ""


FORMULAS = {
    "add": Formula("{0} + {1}"),
    "subtract": Formula("{0} - {1}"),
    "multiply": Formula("{0} * {1}"),
    "divide": Formula("{0} / {1}"),
    "floor_divide": Formula("floor_div({0}, {1})"),
    "remainder": Formula("floor_mod({0}, {1})"),
    "fmod": Formula("fmodf({0}, {1})", "{0} % {1}"),
    "power": Formula("powf({0}, {1})", "power({0}, {1})"),
    "minimum": Formula("({0} < {1} || {0} != {0} ? {0} : {1})"),
    "maximum": Formula("({0} > {1} || {0} != {0} ? {0} : {1})"),
    "equal": Formula("{0} == {1}"),
    "not_equal": Formula("{0} != {1}"),
    "less": Formula("{0} < {1}"),
    "less_equal": Formula("{0} <= {1}"),
    "greater": Formula("{0} > {1}"),
    "greater_equal": Formula("{0} >= {1}"),
    "logical_and": Formula("{0} != 0 && {1} != 0"),
    "logical_or": Formula("{0} != 0 || {1} != 0"),
    "logical_xor": Formula("({0} != 0) != ({1} != 0)"),
    "logical_not": Formula("{0} == 0"),
    "bitwise_and": Formula("", "{0} & {1}"),
    "bitwise_or": Formula("", "{0} | {1}"),
    "bitwise_xor": Formula("", "{0} ^ {1}"),
    "bitwise_not": Formula("", "~{0}"),
    "choose": Formula("({0} != 0 ? {1} : {2})"),
    "convert": Formula("{0}"),
    "absolute": Formula("fabsf({0})", "({0} < 0 ? -{0} : {0})"),
    "sign": Formula("({0} != {0} ? {0} : ({0} > 0) - ({0} < 0))"),
    "floor": Formula("floorf({0})", "{0}"),
    "ceiling": Formula("ceilf({0})", "{0}"),
    "round": Formula("rintf({0})", "{0}"),
    "truncate": Formula("truncf({0})", "{0}"),
    "exponential": Formula("expf({0})"),
    "exponential_minus_one": Formula("expm1f({0})"),
    "power_of_two": Formula("exp2f({0})"),
    "logarithm": Formula("logf({0})"),
    "logarithm_of_one_plus": Formula("log1pf({0})"),
    "logarithm_2": Formula("log2f({0})"),
    "logarithm_10": Formula("log10f({0})"),
    "square_root": Formula("sqrtf({0})"),
    "reciprocal_square_root": Formula("(1.0f / sqrtf({0}))"),
    "reciprocal": Formula("(1.0f / {0})"),
    "sine": Formula("sinf({0})"),
    "cosine": Formula("cosf({0})"),
    "tangent": Formula("tanf({0})"),
    "arc_tangent": Formula("atanf({0})"),
    "arc_tangent_2": Formula("atan2f({0}, {1})"),
    "hyperbolic_sine": Formula("sinhf({0})"),
    "hyperbolic_cosine": Formula("coshf({0})"),
    "error_function": Formula("erff({0})"),
    "is_nan": Formula("{0} != {0}"),
    "is_infinite": Formula("fabsf({0}) == __int_as_float(0x7f800000)", "0"),
}


def expression(operator: Operator, values: Mapping[str, Name]) -> str:
    """Return one operator of a group as C over the names of its operands.

    Raises ValueError for what is not an elementwise function.
    """

    def floating(reference: Ref) -> str:
        return _as(values[reference.name], "float32")

    if isinstance(operator, Pointwise):
        computed = computing_type(operator, lambda reference: values[reference.name].dtype)
        given = [
            _as(values[item.name], "float32" if computed == "float32" else "int64")
            for item in operator.operands
            if isinstance(item, Ref)
        ]
        return formula_of(operator, computed, given)
    if isinstance(operator, Binary):
        other = floating(operator.b) if isinstance(operator.b, Ref) else number(operator.b)
        plain = f"{floating(operator.a)} {SIGNS[operator.function]} {other}"
        return with_activation(plain, operator.activation)
    if isinstance(operator, Activate):
        return with_activation(floating(operator.x), operator.activation)
    if isinstance(operator, ActivateBackward):
        gradient, value = floating(operator.gradient), floating(operator.value)
        return derivative(operator.activation, gradient, value, operator.from_result)
    if isinstance(operator, BatchNormInference):
        text = f"({floating(operator.x)} - {floating(operator.mean)})"
        text += f" * rsqrtf({floating(operator.variance)} + {number(operator.epsilon)})"
        for sign, vector in (("*", operator.scale), ("+", operator.shift)):
            text += "" if vector is None else f" {sign} {floating(vector)}"
        return with_activation(text, operator.activation)
    raise ValueError(f"{operator.op()} is not an elementwise function")


def is_written(node: Node, values: Mapping[str, Value]) -> bool:
    """True if there is C for this function of elements: an activation may have none."""
    operator = record_of(node)
    names = {n: Name("x", values[n].dtype, values[n].dtype) for n in node.references()}
    try:
        return operator is not None and bool(expression(operator, names))
    except (KeyError, ValueError):
        return False


def _as(name: Name, dtype: str) -> str:
    """The value in the computing type."""
    if dtype == "float32":
        return name.text if name.dtype == dtype else f"static_cast<float>({name.text})"
    return f"static_cast<long long>({name.text})"


def formula_of(arguments: Pointwise, computed: str, given: Sequence[str]) -> str:
    """Return the function as C. given: the operands that are values, in the computing type."""
    rest = iter(given)
    names = [
        next(rest) if isinstance(operand, Ref) else _literal(operand, computed)
        for operand in arguments.operands
    ]
    if arguments.function == "power" and computed == "float32" and names[1] == "2.0f":
        return f"{names[0]} * {names[0]}"
    formula = FORMULAS[arguments.function]
    if computed == "bool" and arguments.function == "bitwise_not":
        return f"{names[0]} == 0"
    text = formula.floats if computed == "float32" else formula.integers or formula.floats
    return text.format(*(f"({name})" for name in names))


def _literal(value: bool | float, computed: str) -> str:
    return number(float(value)) if computed == "float32" else f"{int(value)}LL"


def computing_type(arguments: Pointwise, dtype_of: Callable[[Ref], str]) -> str:
    """Return the type in which the function is computed."""
    operands = arguments.operands
    if arguments.function == "choose":
        operands = operands[1:]
    if arguments.function in OF_FLOATS:
        return "float32"
    return computed_in(operands, [dtype_of(item) for item in operands if isinstance(item, Ref)])
