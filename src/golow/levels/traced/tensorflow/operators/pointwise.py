"""Functions of elements, which broadcast."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.pointwise_functions import ALIKE, BOUNDED
from golow.levels.traced.strict_types import Spelling
from golow.levels.traced.tensorflow.dialect import TENSORFLOW
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

# Where no value beside a number states which type it has.
OF_TENSORS = frozenset(("choose", *BOUNDED))

SPELLING = Spelling(TENSORFLOW, FUNCTIONS, FMOD, POWERS, OF_TENSORS)
IMPLEMENTATIONS = (Implementation(Pointwise, SPELLING.build),)
