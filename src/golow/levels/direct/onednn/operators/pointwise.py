"""Functions of elements with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.steps.array_steps import of_arrays
from golow.lower.ir.graph import Ref
from golow.lower.operators.pointwise import OF_FLOATS, Operand, Pointwise, computed_in

Array = Any


def _error_function(x: Array) -> Array:
    from scipy.special import erf

    return erf(x)


def _remainder(a: Array, b: Array) -> Array:
    return np.remainder(a, b)


UFUNCS: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "floor_divide": np.floor_divide,
    "remainder": _remainder,
    "fmod": np.fmod,
    "power": np.power,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "logical_not": np.logical_not,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "bitwise_not": np.invert,
    "choose": np.where,
    "convert": lambda x: x,
    "absolute": np.absolute,
    "sign": lambda x: np.sign(x) if x.dtype != np.bool_ else x,
    "floor": np.floor,
    "ceiling": np.ceil,
    "round": np.rint,
    "truncate": np.trunc,
    "exponential": np.exp,
    "exponential_minus_one": np.expm1,
    "power_of_two": np.exp2,
    "logarithm": np.log,
    "logarithm_of_one_plus": np.log1p,
    "logarithm_2": np.log2,
    "logarithm_10": np.log10,
    "square_root": np.sqrt,
    "reciprocal_square_root": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "sine": np.sin,
    "cosine": np.cos,
    "tangent": np.tan,
    "arc_tangent": np.arctan,
    "arc_tangent_2": np.arctan2,
    "hyperbolic_sine": np.sinh,
    "hyperbolic_cosine": np.cosh,
    "error_function": _error_function,
    "is_nan": np.isnan,
    "is_infinite": np.isinf,
}


def pointwise(build: Builder, arguments: Pointwise) -> None:
    """Compute in the common type of the operands, then convert."""
    function, references = UFUNCS[arguments.function], _references(arguments)
    kind = np.dtype(_computed_in(build, arguments))
    choice = arguments.function == "choose"
    converts = arguments.function == "convert"
    places = [isinstance(operand, Ref) for operand in arguments.operands]
    constants = [None if isinstance(o, Ref) else kind.type(o) for o in arguments.operands]

    def run(*arrays: Array) -> None:
        *given, out = arrays
        rest = iter(given)
        operands = [next(rest) if place else c for place, c in zip(places, constants, strict=True)]
        if not converts:
            operands = [
                o if choice and i == 0 else np.asarray(o).astype(kind, copy=False)
                for i, o in enumerate(operands)
            ]
        with np.errstate(all="ignore"):
            if isinstance(function, np.ufunc) and out.dtype == kind and function.nout == 1:
                function(*operands, out=out)
            else:
                np.copyto(out, function(*operands), casting="unsafe")

    of_arrays(build, run, *references)


def _computed_in(build: Builder, arguments: Pointwise) -> str:
    dtypes = [build.current.value(reference).dtype for reference in _references(arguments)]
    operands: tuple[Operand, ...] = arguments.operands
    if arguments.function == "choose":
        operands = operands[1:]
        if isinstance(arguments.operands[0], Ref):
            dtypes = dtypes[1:]
    if arguments.function in OF_FLOATS:
        return "float32"
    return computed_in(operands, dtypes)


def _references(arguments: Pointwise) -> list[Ref]:
    return [operand for operand in arguments.operands if isinstance(operand, Ref)]


def _refuse(arguments: Pointwise, question: Question) -> str:
    if arguments.function not in UFUNCS:
        return f"{question.node.op} with the function {arguments.function}"
    return ""


IMPLEMENTATIONS = (Implementation(Pointwise, pointwise, _refuse),)
