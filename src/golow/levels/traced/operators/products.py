"""Linear layers and matrix products."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.operators.activation import activated
from golow.levels.traced.writer import Writer
from golow.lower.operators.linear import Linear
from golow.lower.operators.matrix_product import MatrixProduct


def linear(writer: Writer, given: Linear) -> None:
    """``activation(x weight^T + bias + residual)``."""
    x, weight = writer.plain(given.x), writer.plain(given.weight)
    bias = None if given.bias is None else writer.plain(given.bias)
    shape, size = writer.value(given.x).shape, writer.value(given.weight).shape[0]
    result = writer.dialect.affine(x, weight, bias, shape, size)
    if given.residual is not None:
        result += f" + {writer.plain(given.residual)}"
    writer.put(activated(writer, result, given.activation))


def product(writer: Writer, given: MatrixProduct) -> None:
    """``a b``, and what is added."""
    result = writer.dialect.product(writer.plain(given.a), writer.plain(given.b))
    added = "" if given.added is None else f" + {writer.plain(given.added)}"
    writer.put(f"{result}{added}")


IMPLEMENTATIONS = (Implementation(Linear, linear), Implementation(MatrixProduct, product))
