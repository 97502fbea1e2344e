"""Linear layers and matrix products."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.tensorflow.operators.activation import activated
from golow.levels.traced.tensorflow.writer import Writer
from golow.lower.operators.linear import Linear
from golow.lower.operators.matrix_product import MatrixProduct


def linear(writer: Writer, given: Linear) -> None:
    """``activation(x weight^T + bias + residual)``, of rows."""
    x, weight = writer.plain(given.x), writer.plain(given.weight)
    *outer, width = writer.value(given.x).shape
    rows = x if len(outer) == 1 else f"tf.reshape({x}, (-1, {width}))"
    result = f"tf.matmul({rows}, {weight}, transpose_b=True)"
    if given.bias is not None:
        result = f"tf.nn.bias_add({result}, {writer.plain(given.bias)})"
    if len(outer) != 1:
        result = f"tf.reshape({result}, {(*outer, writer.value(given.weight).shape[0])})"
    if given.residual is not None:
        result += f" + {writer.plain(given.residual)}"
    if given.activation is not None:
        result = activated(writer.line("sum", result), given.activation)
    writer.put(result)


def product(writer: Writer, given: MatrixProduct) -> None:
    """``a b``."""
    writer.put(f"tf.matmul({writer.plain(given.a)}, {writer.plain(given.b)})")


IMPLEMENTATIONS = (Implementation(Linear, linear), Implementation(MatrixProduct, product))
