"""Functions of elements, which broadcast."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.jax.operators.activation import activated
from golow.levels.traced.jax.writer import DTYPES, Writer, number
from golow.levels.traced.widening import is_cast
from golow.lower.ir.graph import Ref
from golow.lower.operators.binary import Binary
from golow.lower.operators.pointwise import Pointwise

SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}

# {0}, {1}, {2}: the operands.
FUNCTIONS = {
    **{name: f"{{0}} {sign} {{1}}" for name, sign in SIGNS.items()},
    "floor_divide": "jnp.floor_divide({0}, {1})",
    "remainder": "jnp.remainder({0}, {1})",
    "fmod": "jnp.fmod({0}, {1})",
    "power": "{0} ** {1}",
    "minimum": "jnp.minimum({0}, {1})",
    "maximum": "jnp.maximum({0}, {1})",
    "equal": "{0} == {1}",
    "not_equal": "{0} != {1}",
    "less": "{0} < {1}",
    "less_equal": "{0} <= {1}",
    "greater": "{0} > {1}",
    "greater_equal": "{0} >= {1}",
    "logical_and": "jnp.logical_and({0}, {1})",
    "logical_or": "jnp.logical_or({0}, {1})",
    "logical_xor": "jnp.logical_xor({0}, {1})",
    "logical_not": "jnp.logical_not({0})",
    "bitwise_and": "{0} & {1}",
    "bitwise_or": "{0} | {1}",
    "bitwise_xor": "{0} ^ {1}",
    "bitwise_not": "~{0}",
    "choose": "jnp.where({0}, {1}, {2})",
    "convert": "{0}",
    "absolute": "jnp.abs({0})",
    "sign": "jnp.sign({0})",
    "floor": "jnp.floor({0})",
    "ceiling": "jnp.ceil({0})",
    "round": "jnp.round({0})",
    "truncate": "jnp.trunc({0})",
    "exponential": "jnp.exp({0})",
    "exponential_minus_one": "jnp.expm1({0})",
    "power_of_two": "jnp.exp2({0})",
    "logarithm": "jnp.log({0})",
    "logarithm_of_one_plus": "jnp.log1p({0})",
    "logarithm_2": "jnp.log2({0})",
    "logarithm_10": "jnp.log10({0})",
    "square_root": "jnp.sqrt({0})",
    "reciprocal_square_root": "lax.rsqrt({0})",
    "reciprocal": "1 / {0}",
    "sine": "jnp.sin({0})",
    "cosine": "jnp.cos({0})",
    "tangent": "jnp.tan({0})",
    "arc_tangent": "jnp.arctan({0})",
    "arc_tangent_2": "jnp.arctan2({0}, {1})",
    "hyperbolic_sine": "jnp.sinh({0})",
    "hyperbolic_cosine": "jnp.cosh({0})",
    "error_function": "lax.erf({0})",
    "is_nan": "jnp.isnan({0})",
    "is_infinite": "jnp.isinf({0})",
}
# Where a number bounds a value, PyTorch's gradient is whole at the bound and JAX's is halved.
BOUNDED = {
    "minimum": "jnp.where({0} > {1}, {1}, {0})",
    "maximum": "jnp.where({0} < {1}, {1}, {0})",
}
TRUTHS = frozenset(
    "equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor "
    "logical_not is_nan is_infinite".split()
)
OF_FLOATS = frozenset(
    "exponential exponential_minus_one power_of_two logarithm logarithm_of_one_plus logarithm_2 "
    "logarithm_10 square_root reciprocal_square_root reciprocal sine cosine tangent arc_tangent "
    "arc_tangent_2 hyperbolic_sine hyperbolic_cosine error_function floor ceiling round "
    "truncate".split()
)


def two(writer: Writer, given: Binary) -> None:
    """``activation(a OP b)``."""
    if isinstance(given.b, Ref):
        [a, b], image = writer.together(given.a, given.b)
    else:
        [a], image = writer.together(given.a)
        b = _operand(given.b)
    result = f"{a} {SIGNS[given.function]} {b}"
    if given.activation is not None:
        result = activated(writer.line("sum", result), given.activation)
    writer.put(result, image)


def several(writer: Writer, given: Pointwise) -> None:
    """``function(*operands)``, converted to the type of the result."""
    if is_cast(writer.node):
        [source] = given.operands
        assert isinstance(source, Ref)  # noqa: S101
        writer.put_cast(source, given.dtype)
        return
    values = [item for item in given.operands if isinstance(item, Ref)]
    found, image = writer.together(*values)
    names = iter(found)
    operands = [
        next(names) if isinstance(item, Ref) else _operand(_exponent(given, item))
        for item in given.operands
    ]
    wanted = DTYPES[given.dtype]
    dtypes = {DTYPES[writer.value(item).dtype] for item in values}
    if given.function in OF_FLOATS and wanted == "jnp.float32" and dtypes != {wanted}:
        operands = [f"{item}.astype({wanted})" for item in operands]
        dtypes = {wanted}
    text = FUNCTIONS[given.function]
    if given.function in BOUNDED and not isinstance(given.operands[1], Ref):
        text = BOUNDED[given.function]
    result = text.format(*operands)
    if given.function in TRUTHS:
        dtypes = {"jnp.bool_"}
    writer.put(result if dtypes == {wanted} else f"({result}).astype({wanted})", image)


def _exponent(given: Pointwise, item: float) -> float:
    """A whole exponent as an integer: its gradient is then a product, also at zero."""
    whole = isinstance(item, float) and item.is_integer() and abs(item) < 64
    return int(item) if given.function == "power" and whole else item


def _operand(item: float) -> str:
    text = number(item)
    return f"({text})" if text.startswith("-") else text


IMPLEMENTATIONS = (Implementation(Binary, two), Implementation(Pointwise, several))
