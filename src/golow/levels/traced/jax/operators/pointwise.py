"""Functions of elements, which broadcast. JAX promotes the types of operands as PyTorch does, but
for functions of floats."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.jax.dialect import DTYPES
from golow.levels.traced.pointwise_functions import ALIKE, BOUNDED, COMPARISONS, LOGIC, TESTS
from golow.levels.traced.widening import is_cast
from golow.levels.traced.writer import Writer
from golow.lower.ir.graph import Ref
from golow.lower.operators.pointwise import Pointwise

FUNCTIONS = {
    **ALIKE,
    "floor_divide": "jnp.floor_divide({0}, {1})",
    "remainder": "jnp.remainder({0}, {1})",
    "fmod": "jnp.fmod({0}, {1})",
    "power": "{0} ** {1}",
    "equal": "{0} == {1}",
    "not_equal": "{0} != {1}",
    "logical_xor": "jnp.logical_xor({0}, {1})",
    "ceiling": "jnp.ceil({0})",
    "truncate": "jnp.trunc({0})",
    "exponential_minus_one": "jnp.expm1({0})",
    "power_of_two": "jnp.exp2({0})",
    "logarithm": "jnp.log({0})",
    "logarithm_of_one_plus": "jnp.log1p({0})",
    "logarithm_2": "jnp.log2({0})",
    "logarithm_10": "jnp.log10({0})",
    "reciprocal_square_root": "lax.rsqrt({0})",
    "arc_tangent": "jnp.arctan({0})",
    "arc_tangent_2": "jnp.arctan2({0}, {1})",
    "error_function": "lax.erf({0})",
    "is_nan": "jnp.isnan({0})",
    "is_infinite": "jnp.isinf({0})",
}
OF_FLOATS = frozenset(
    "exponential exponential_minus_one power_of_two logarithm logarithm_of_one_plus logarithm_2 "
    "logarithm_10 square_root reciprocal_square_root reciprocal sine cosine tangent arc_tangent "
    "arc_tangent_2 hyperbolic_sine hyperbolic_cosine error_function floor ceiling round "
    "truncate".split()
)


def build(writer: Writer, given: Pointwise) -> None:
    """``function(*operands)``, converted to the type of the result."""
    dialect = writer.dialect
    if is_cast(writer.node):
        [source] = given.operands
        assert isinstance(source, Ref)  # noqa: S101
        writer.put_cast(source, given.dtype)
        return
    values = [item for item in given.operands if isinstance(item, Ref)]
    found, image = writer.together(*values)
    names = iter(found)
    operands = [
        next(names) if isinstance(item, Ref) else dialect.operand(_exponent(given, item))
        for item in given.operands
    ]
    wanted = DTYPES[given.dtype]
    dtypes = {DTYPES[writer.value(item).dtype] for item in values}
    if given.function in OF_FLOATS and wanted == "jnp.float32" and dtypes != {wanted}:
        operands = [dialect.converted(item, given.dtype) for item in operands]
        dtypes = {wanted}
    text = FUNCTIONS[given.function]
    if given.function in BOUNDED and not isinstance(given.operands[1], Ref):
        text = BOUNDED[given.function]
    result = text.format(*operands, m=dialect.module)
    if given.function in COMPARISONS | LOGIC | TESTS:
        dtypes = {DTYPES["bool"]}
    same = dtypes == {wanted}
    writer.put(result if same else dialect.converted(f"({result})", given.dtype), image)


def _exponent(given: Pointwise, item: float) -> float:
    """A whole exponent as an integer: its gradient is then a product, also at zero."""
    whole = isinstance(item, float) and item.is_integer() and abs(item) < 64
    return int(item) if given.function == "power" and whole else item


IMPLEMENTATIONS = (Implementation(Pointwise, build),)
