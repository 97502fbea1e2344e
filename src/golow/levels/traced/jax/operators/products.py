"""Linear layers and matrix products."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.jax.operators.activation import activated
from golow.levels.traced.jax.writer import Writer
from golow.lower.operators.linear import Linear
from golow.lower.operators.matrix_product import MatrixProduct


def linear(writer: Writer, given: Linear) -> None:
    """``activation(x weight^T + bias + residual)``."""
    result = f"{writer.plain(given.x)} @ {writer.plain(given.weight)}.T"
    for item in (given.bias, given.residual):
        if item is not None:
            result += f" + {writer.plain(item)}"
    if given.activation is not None:
        result = activated(writer.line("sum", result), given.activation)
    writer.put(result)


def product(writer: Writer, given: MatrixProduct) -> None:
    """``a b``."""
    writer.put(f"{writer.plain(given.a)} @ {writer.plain(given.b)}")


IMPLEMENTATIONS = (Implementation(Linear, linear), Implementation(MatrixProduct, product))
