"""Arithmetic of two operands, with an activation."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.operators.activation import activated
from golow.levels.traced.pointwise_functions import SIGNS
from golow.levels.traced.writer import Writer
from golow.lower.ir.graph import Ref
from golow.lower.operators.binary import Binary


def build(writer: Writer, given: Binary) -> None:
    """``activation(a OP b)``."""
    if isinstance(given.b, Ref):
        [a, b], image = writer.together(given.a, given.b)
    else:
        [a], image = writer.together(given.a)
        b = writer.dialect.operand(given.b)
    result = f"{a} {SIGNS[given.function]} {b}"
    writer.put(activated(writer, result, given.activation), image)


IMPLEMENTATIONS = (Implementation(Binary, build),)
