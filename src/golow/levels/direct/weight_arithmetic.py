"""Values computed from weights alone, once, while a plan for inference is loaded: with NumPy, in
float64, rounded once. `lower/operators/` defines each operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator
from golow.lower.operators.folded_batch_norm import FoldedBias, FoldedWeight
from golow.lower.operators.joined_weight import JoinedWeight
from golow.lower.operators.trimmed_weight import TrimmedWeight

Array = np.ndarray


def folded_weight(
    weight: Array, scale: Array | None, variance: Array | None, epsilon: float
) -> Array:
    """weight * scale / sqrt(variance + epsilon), over the first axis."""
    factor = _factor(scale, variance, epsilon).reshape(-1, *[1] * (weight.ndim - 1))
    result = np.empty_like(weight)
    # Channel by channel: float64 copies of all would double the memory that loading needs.
    for channel in range(len(weight)):
        result[channel] = weight[channel].astype(np.float64) * factor[channel]
    return result


def folded_bias(
    bias: Array | None,
    scale: Array | None,
    shift: Array | None,
    mean: Array,
    variance: Array,
    epsilon: float,
) -> Array:
    """(bias - mean) * scale / sqrt(variance + epsilon) + shift."""
    centred = (0.0 if bias is None else bias.astype(np.float64)) - mean.astype(np.float64)
    found: Array = centred * _factor(scale, variance, epsilon)
    return (found if shift is None else found + shift).astype(mean.dtype)


def trimmed_weight(weight: Array, rows: tuple[int, int], columns: tuple[int, int]) -> Array:
    """Cut out the taps of a kernel in these ranges of rows and columns."""
    return weight[:, :, slice(*rows), slice(*columns)]


def joined_weight(parts: Sequence[Array]) -> Array:
    """One after the other along the first axis."""
    return np.concatenate(parts)


def computed(operator: Operator, value: Callable[[str], Array]) -> Array:
    """Result of the operator. value: of a name in the graph."""

    def given(item: Any) -> Any:
        if isinstance(item, Ref):
            return value(item.name)
        return tuple(map(given, item)) if isinstance(item, tuple) else item

    fields = {name: given(item) for name, item in msgspec.structs.asdict(operator).items()}
    return ARITHMETIC[operator.op()](**fields)


def _factor(scale: Array | None, variance: Array | None, epsilon: float) -> Any:
    deviation = 1.0 if variance is None else np.sqrt(variance.astype(np.float64) + epsilon)
    factor: Any = 1 / deviation
    return factor if scale is None else factor * scale.astype(np.float64)


# By the operator's name in a graph; called with its fields, with arrays instead of references.
ARITHMETIC: dict[str, Callable[..., Array]] = {
    FoldedWeight.op(): folded_weight,
    FoldedBias.op(): folded_bias,
    TrimmedWeight.op(): trimmed_weight,
    JoinedWeight.op(): joined_weight,
}
