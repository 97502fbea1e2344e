"""Functions of elements that frameworks spell alike, and of which kind each is."""

from __future__ import annotations

SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}
# {0}, {1}, {2}: the operands, {m}: the module of the framework's functions.
ALIKE = {
    **{name: f"{{0}} {sign} {{1}}" for name, sign in SIGNS.items()},
    "minimum": "{m}.minimum({0}, {1})",
    "maximum": "{m}.maximum({0}, {1})",
    "less": "{0} < {1}",
    "less_equal": "{0} <= {1}",
    "greater": "{0} > {1}",
    "greater_equal": "{0} >= {1}",
    "logical_and": "{m}.logical_and({0}, {1})",
    "logical_or": "{m}.logical_or({0}, {1})",
    "logical_not": "{m}.logical_not({0})",
    "bitwise_and": "{0} & {1}",
    "bitwise_or": "{0} | {1}",
    "bitwise_xor": "{0} ^ {1}",
    "bitwise_not": "~{0}",
    "choose": "{m}.where({0}, {1}, {2})",
    "convert": "{0}",
    "absolute": "{m}.abs({0})",
    "sign": "{m}.sign({0})",
    "floor": "{m}.floor({0})",
    "round": "{m}.round({0})",
    "exponential": "{m}.exp({0})",
    "square_root": "{m}.sqrt({0})",
    "reciprocal": "1 / {0}",
    "sine": "{m}.sin({0})",
    "cosine": "{m}.cos({0})",
    "tangent": "{m}.tan({0})",
    "hyperbolic_sine": "{m}.sinh({0})",
    "hyperbolic_cosine": "{m}.cosh({0})",
}
# Where a number bounds a value, PyTorch's gradient at the bound is that of the value: whole. Of a
# framework's own functions it is halved, or none.
BOUNDED = {
    "minimum": "{m}.where({0} > {1}, {1}, {0})",
    "maximum": "{m}.where({0} < {1}, {1}, {0})",
}
COMPARISONS = frozenset("equal not_equal less less_equal greater greater_equal".split())
LOGIC = frozenset("logical_and logical_or logical_xor logical_not".split())
TESTS = frozenset(("is_nan", "is_infinite"))
