"""Functions of elements, which broadcast."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.paddle.dialect import PADDLE
from golow.levels.traced.pointwise_functions import ALIKE, BOUNDED, LOGIC
from golow.levels.traced.strict_types import Spelling
from golow.lower.operators.pointwise import Pointwise

FUNCTIONS = {
    **ALIKE,
    "floor_divide": "{0} // {1}",
    "remainder": "{0} % {1}",
    "fmod": "paddle.sign({0}) * (paddle.abs({0}) % paddle.abs({1}))",
    "power": "{0} ** {1}",
    "equal": "{0} == {1}",
    "not_equal": "{0} != {1}",
    "logical_xor": "paddle.logical_xor({0}, {1})",
    "ceiling": "paddle.ceil({0})",
    "truncate": "paddle.trunc({0})",
    "exponential_minus_one": "paddle.expm1({0})",
    "power_of_two": "paddle.exp2({0})",
    "logarithm": "paddle.log({0})",
    "logarithm_of_one_plus": "paddle.log1p({0})",
    "logarithm_2": "paddle.log2({0})",
    "logarithm_10": "paddle.log10({0})",
    "reciprocal_square_root": "paddle.rsqrt({0})",
    "arc_tangent": "paddle.atan({0})",
    "arc_tangent_2": "paddle.atan2({0}, {1})",
    "error_function": "paddle.erf({0})",
    "is_nan": "paddle.isnan({0})",
    "is_infinite": "paddle.isinf({0})",
}
FMOD = "{0} - {1} * paddle.trunc({0} / {1})"
POWERS = {2: "paddle.square({0})", 0.5: "paddle.sqrt({0})", 3: "{0} * paddle.square({0})"}
# Functions, and operators of `Tensor`, that take no number of Python's.
OF_TENSORS = LOGIC | {
    *("choose", *BOUNDED, "fmod", "arc_tangent_2"),
    *("bitwise_and", "bitwise_or", "bitwise_xor"),
}

SPELLING = Spelling(PADDLE, FUNCTIONS, FMOD, POWERS, OF_TENSORS)
IMPLEMENTATIONS = (Implementation(Pointwise, SPELLING.build),)
