"""Which nodes read half precision as float32 and round their result once, as PyTorch's kernels do,
and which need not."""

from __future__ import annotations

from collections.abc import Sequence

from golow.lower.ir.graph import Node, Ref, Value
from golow.lower.ir.operator import record_of
from golow.lower.operators.activation import Activate
from golow.lower.operators.binary import Binary
from golow.lower.operators.pointwise import Pointwise

HALF_TYPES = ("bfloat16", "float16")

# Operators that compute in half precision, with sums in float32, or only move numbers.
NARROW = frozenset(
    f"golow.{name}"
    for name in "convolution convolution_backward linear matrix_product max_pool concatenate copy "
    "expand flip pad permute pixel_unshuffle reshape slice take gather index dropout".split()
)

# float32 has at least twice the digits of half precision and two more, so that these, computed in
# float32 and rounded, are what half precision gives by itself.
# Source: Figueroa, "When is double rounding innocuous?", ACM SIGNUM Newsletter 30 (1995).
ROUNDED_ONCE = frozenset("add subtract multiply divide".split())


def is_cast(node: Node) -> bool:
    """True if the node converts one value to half precision."""
    layer = Pointwise.of(node)
    return layer is not None and layer.function == "convert" and layer.dtype in HALF_TYPES


def computes_wide(node: Node, values: Sequence[Value]) -> bool:
    """True if the node computes in float32 what it reads and returns in half precision. values: all
    of these."""
    if all(value.dtype not in HALF_TYPES for value in values):
        return False
    return node.op not in NARROW and not is_cast(node) and not _rounds_once(node, values)


def _rounds_once(node: Node, values: Sequence[Value]) -> bool:
    """True if half precision alone gives the same number: a relu, or one operation on values of one
    type and one shape, since a gradient of what is repeated is a sum. Casts would be right, too,
    but with them a compiler does not recognise the end of a convolution."""
    layer = record_of(node)
    if isinstance(layer, Activate):
        return layer.activation.name == "relu"
    if len({(value.dtype, value.shape) for value in values}) > 1:
        return False
    if isinstance(layer, Binary):
        relu = layer.activation is None or layer.activation.name == "relu"
        return relu and isinstance(layer.b, Ref)
    if isinstance(layer, Pointwise):
        operands = all(isinstance(item, Ref) for item in layer.operands)
        return operands and layer.function in ROUNDED_ONCE
    return False
