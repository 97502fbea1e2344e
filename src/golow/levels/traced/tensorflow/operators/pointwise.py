"""Functions of elements, which broadcast. TensorFlow converts no types, so each operand is cast."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.pointwise_functions import ALIKE, BOUNDED, COMPARISONS, LOGIC, TESTS
from golow.levels.traced.tensorflow.dialect import DTYPES, TENSORFLOW
from golow.levels.traced.writer import Writer
from golow.lower.ir.graph import Ref
from golow.lower.operators.pointwise import Pointwise

FUNCTIONS = {
    **ALIKE,
    "floor_divide": "tf.math.floordiv({0}, {1})",
    "remainder": "tf.math.floormod({0}, {1})",
    "fmod": "tf.truncatemod({0}, {1})",
    "power": "tf.pow({0}, {1})",
    "equal": "tf.equal({0}, {1})",
    "not_equal": "tf.not_equal({0}, {1})",
    "logical_xor": "tf.math.logical_xor({0}, {1})",
    "ceiling": "tf.math.ceil({0})",
    "truncate": "tf.where({0} < 0, tf.math.ceil({0}), tf.floor({0}))",
    "exponential_minus_one": "tf.math.expm1({0})",
    "power_of_two": "tf.pow(2.0, {0})",
    "logarithm": "tf.math.log({0})",
    "logarithm_of_one_plus": "tf.math.log1p({0})",
    "logarithm_2": "tf.math.log({0}) / math.log(2)",
    "logarithm_10": "tf.math.log({0}) / math.log(10)",
    "reciprocal_square_root": "tf.math.rsqrt({0})",
    "arc_tangent": "tf.atan({0})",
    "arc_tangent_2": "tf.atan2({0}, {1})",
    "error_function": "tf.math.erf({0})",
    "is_nan": "tf.math.is_nan({0})",
    "is_infinite": "tf.math.is_inf({0})",
}
# Remainder of float values; TensorFlow has no gradient of its remainder.
FMOD = "{0} - {1} * tf.where({0} / {1} < 0, tf.math.ceil({0} / {1}), tf.floor({0} / {1}))"
# Powers that have a name: their gradient is then a product.
POWERS = {2: "tf.square({0})", 0.5: "tf.sqrt({0})", 3: "{0} * tf.square({0})"}
ORDER = tuple(DTYPES)  # of promotion


def build(writer: Writer, given: Pointwise) -> None:
    """``function(*operands)``, converted to the type of the result."""
    values = [item for item in given.operands if isinstance(item, Ref)]
    found, image = writer.together(*values)
    names = iter(found)
    wanted, computed = _dtypes(writer, given)
    alone = given.function in ("choose", *BOUNDED)
    operands = [
        TENSORFLOW.cast(next(names), writer.value(item).dtype, dtype)
        if isinstance(item, Ref)
        else _literal(item, dtype, alone)
        for item, dtype in zip(given.operands, wanted, strict=True)
    ]
    result = _function(given, computed).format(*operands, m=TENSORFLOW.module)
    writer.put(TENSORFLOW.cast(result, computed, given.dtype), image)


def _dtypes(writer: Writer, given: Pointwise) -> tuple[list[str], str]:
    """The type in which each operand is taken, and that of what the function then gives."""
    own = [_dtype(writer, item) for item in given.operands]
    common = max(own, key=ORDER.index)
    if given.function in TESTS:
        return own, "bool"
    if given.function in COMPARISONS:
        return [common] * len(own), "bool"
    if given.function in LOGIC:
        return ["bool"] * len(own), "bool"
    if given.function == "convert":
        return own, own[0]
    if given.function == "choose":
        return ["bool", given.dtype, given.dtype], given.dtype
    wanted = given.dtype if given.dtype != "bool" else common
    return [wanted] * len(own), wanted


def _dtype(writer: Writer, item: Ref | float) -> str:
    """Type of a value, or the least of a number."""
    if isinstance(item, Ref):
        return writer.value(item).dtype
    if isinstance(item, float):
        return "float32"
    return "bool" if isinstance(item, bool) else "uint8" if 0 <= item < 256 else "int32"


def _literal(item: float, dtype: str, alone: bool) -> str:
    """A number in that type. alone: where no value beside it states which type it has."""
    number = bool(item) if dtype == "bool" else float(item) if dtype == "float32" else int(item)
    return TENSORFLOW.typed(number, dtype) if alone else TENSORFLOW.operand(number)


def _function(given: Pointwise, computed: str) -> str:
    """The spelling of the function, on values of that type."""
    second = given.operands[1] if len(given.operands) > 1 else None
    if given.function == "fmod" and computed == "float32":
        return FMOD
    if second is not None and not isinstance(second, Ref):
        if given.function in BOUNDED:
            return BOUNDED[given.function]
        if given.function == "power" and second in POWERS:
            return POWERS[second]
    return FUNCTIONS[given.function]


IMPLEMENTATIONS = (Implementation(Pointwise, build),)
