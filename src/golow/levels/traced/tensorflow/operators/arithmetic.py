"""Functions of elements, which broadcast. TensorFlow converts no types, so each operand is cast."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.tensorflow.operators.activation import activated
from golow.levels.traced.tensorflow.writer import DTYPES, Writer
from golow.levels.traced.writer import number
from golow.lower.ir.graph import Ref
from golow.lower.operators.binary import Binary
from golow.lower.operators.pointwise import Pointwise

SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}

# {0}, {1}, {2}: the operands.
FUNCTIONS = {
    **{name: f"{{0}} {sign} {{1}}" for name, sign in SIGNS.items()},
    "floor_divide": "tf.math.floordiv({0}, {1})",
    "remainder": "tf.math.floormod({0}, {1})",
    "fmod": "tf.truncatemod({0}, {1})",
    "power": "tf.pow({0}, {1})",
    "minimum": "tf.minimum({0}, {1})",
    "maximum": "tf.maximum({0}, {1})",
    "equal": "tf.equal({0}, {1})",
    "not_equal": "tf.not_equal({0}, {1})",
    "less": "{0} < {1}",
    "less_equal": "{0} <= {1}",
    "greater": "{0} > {1}",
    "greater_equal": "{0} >= {1}",
    "logical_and": "tf.logical_and({0}, {1})",
    "logical_or": "tf.logical_or({0}, {1})",
    "logical_xor": "tf.math.logical_xor({0}, {1})",
    "logical_not": "tf.logical_not({0})",
    "bitwise_and": "{0} & {1}",
    "bitwise_or": "{0} | {1}",
    "bitwise_xor": "{0} ^ {1}",
    "bitwise_not": "~{0}",
    "choose": "tf.where({0}, {1}, {2})",
    "convert": "{0}",
    "absolute": "tf.abs({0})",
    "sign": "tf.sign({0})",
    "floor": "tf.floor({0})",
    "ceiling": "tf.math.ceil({0})",
    "round": "tf.round({0})",
    "truncate": "tf.where({0} < 0, tf.math.ceil({0}), tf.floor({0}))",
    "exponential": "tf.exp({0})",
    "exponential_minus_one": "tf.math.expm1({0})",
    "power_of_two": "tf.pow(2.0, {0})",
    "logarithm": "tf.math.log({0})",
    "logarithm_of_one_plus": "tf.math.log1p({0})",
    "logarithm_2": "tf.math.log({0}) / math.log(2)",
    "logarithm_10": "tf.math.log({0}) / math.log(10)",
    "square_root": "tf.sqrt({0})",
    "reciprocal_square_root": "tf.math.rsqrt({0})",
    "reciprocal": "1 / {0}",
    "sine": "tf.sin({0})",
    "cosine": "tf.cos({0})",
    "tangent": "tf.tan({0})",
    "arc_tangent": "tf.atan({0})",
    "arc_tangent_2": "tf.atan2({0}, {1})",
    "hyperbolic_sine": "tf.sinh({0})",
    "hyperbolic_cosine": "tf.cosh({0})",
    "error_function": "tf.math.erf({0})",
    "is_nan": "tf.math.is_nan({0})",
    "is_infinite": "tf.math.is_inf({0})",
}
# Of float values; TensorFlow has no gradient of its own remainder.
FMOD = "{0} - {1} * tf.where({0} / {1} < 0, tf.math.ceil({0} / {1}), tf.floor({0} / {1}))"
# Where a number bounds a value, PyTorch's gradient at the bound is that of the value.
BOUNDED = {
    "minimum": "tf.where({0} > {1}, {1}, {0})",
    "maximum": "tf.where({0} < {1}, {1}, {0})",
}
COMPARISONS = frozenset("equal not_equal less less_equal greater greater_equal".split())
LOGIC = frozenset("logical_and logical_or logical_xor logical_not".split())
TESTS = frozenset(("is_nan", "is_infinite"))
ORDER = tuple(DTYPES)  # of promotion


def two(writer: Writer, given: Binary) -> None:
    """``activation(a OP b)``."""
    if isinstance(given.b, Ref):
        [a, b], image = writer.together(given.a, given.b)
    else:
        [a], image = writer.together(given.a)
        b = _enclosed(number(given.b))
    result = f"{a} {SIGNS[given.function]} {b}"
    if given.activation is not None:
        result = activated(writer.line("sum", result), given.activation)
    writer.put(result, image)


def several(writer: Writer, given: Pointwise) -> None:
    """``function(*operands)``, converted to the type of the result."""
    values = [item for item in given.operands if isinstance(item, Ref)]
    found, image = writer.together(*values)
    names = iter(found)
    wanted, computed = _dtypes(writer, given)
    alone = given.function in ("choose", *BOUNDED)
    operands = [
        writer.cast(next(names), writer.value(item).dtype, dtype)
        if isinstance(item, Ref)
        else _literal(item, dtype, alone)
        for item, dtype in zip(given.operands, wanted, strict=True)
    ]
    text = _square(given) or FUNCTIONS[given.function]
    numbered = len(given.operands) > 1 and not isinstance(given.operands[1], Ref)
    if given.function in BOUNDED and numbered:
        text = BOUNDED[given.function]
    if given.function == "fmod" and computed == "float32":
        text = FMOD
    result = text.format(*operands)
    writer.put(writer.cast(result, computed, given.dtype), image)


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
    """Of a value, or the least of a number."""
    if isinstance(item, Ref):
        return writer.value(item).dtype
    if isinstance(item, float):
        return "float32"
    return "bool" if isinstance(item, bool) else "uint8" if 0 <= item < 256 else "int32"


def _square(given: Pointwise) -> str:
    """A power that has a name: its gradient is then a product."""
    exponent = given.operands[1] if given.function == "power" else None
    if isinstance(exponent, Ref):
        return ""
    return {2: "tf.square({0})", 0.5: "tf.sqrt({0})", 3: "{0} * tf.square({0})"}.get(
        exponent or 0, ""
    )


def _literal(item: float, dtype: str, alone: bool) -> str:
    """A number in that type. alone: where no value beside it says which type it has."""
    if dtype == "bool":
        text = repr(bool(item))
    elif dtype == "float32":
        text = number(float(item))
    else:
        text = number(int(item))
    return f"tf.constant({text}, {DTYPES[dtype]})" if alone else _enclosed(text)


def _enclosed(text: str) -> str:
    return f"({text})" if text.startswith("-") else text


IMPLEMENTATIONS = (Implementation(Binary, two), Implementation(Pointwise, several))
