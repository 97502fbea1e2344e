"""Functions of elements as C. `fused.py` puts them into kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from golow.levels.vendor.cudnn.kernels.pointwise import number
from golow.levels.vendor.implementation import Implementation, Question, in_groups
from golow.lower.graph import Ref
from golow.lower.operators.pointwise import OF_FLOATS, Pointwise, computed_in

FLOATING = ("float32", "bfloat16", "float16")


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


def stored_in(arguments: Pointwise, dtype: str, of_operands: Sequence[str]) -> str:
    """Return the type in which a result of the graph's dtype is stored. Numbers take the widest
    type among the operands; what autocast computes in float32 stays so."""
    if dtype != "float32":
        return dtype
    floats = {operand for operand in of_operands if operand in FLOATING}
    exact = arguments.function in OF_FLOATS - {"divide", "sine", "cosine"}
    exact = exact or arguments.function == "power"
    return floats.pop() if len(floats) == 1 and not exact else "float32"


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


def _refuse(arguments: Pointwise, question: Question) -> str:
    formula = FORMULAS.get(arguments.function)
    computed = computing_type(arguments, lambda reference: question.value(reference).dtype)
    if formula is None or (computed == "float32" and not formula.floats):
        return f"{question.node.op} with the function {arguments.function}"
    return ""


IMPLEMENTATIONS = (Implementation(Pointwise, in_groups, _refuse),)
