"""Values at which rare cases of an operation decide: variances as small as the epsilon that is
added to them, and maxima that are equal. Gradients are given the size of one.

With the values that a network usually has, a norm without its epsilon is right to within rounding,
and no two elements of a window are equal. Imports no framework.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from golow.lower.ir.graph import Graph, Ref
from golow.lower.ir.operator import Operator, record_of, vocabulary
from golow.lower.operators.batch_norm import BatchNorm, BatchNormBackward
from golow.lower.operators.group_norm import GroupMoments
from golow.lower.operators.layer_norm import LayerNorm, LayerNormBackward
from golow.lower.operators.max_pool import MaxPool
from golow.lower.operators.rms_norm import RmsNorm, RmsNormBackward

SMALL_VARIANCES, EQUAL_MAXIMA = "small variances", "equal maxima"
HARD = {
    BatchNorm: SMALL_VARIANCES,
    GroupMoments: SMALL_VARIANCES,
    LayerNorm: SMALL_VARIANCES,
    RmsNorm: SMALL_VARIANCES,
    MaxPool: EQUAL_MAXIMA,
}
"""Operators, and what is hard for each."""

Harder = Callable[[np.ndarray], np.ndarray]
"""Makes hard values of an operation's usual ones, of the same shape."""


class HardNode(NamedTuple):
    """An operation that reads hard values, and what is hard about them."""

    position: int
    words: str


def hard_values(graph: Graph) -> dict[str, Harder]:
    """Functions that make the input of an operation hard, by the input's name."""
    found: dict[str, Harder] = {}
    for node in graph.nodes:
        operator = record_of(node)
        for name, harder in () if operator is None else _harder(operator):
            found.setdefault(name, harder)
    return found


def hard_nodes(graph: Graph, names: Collection[str]) -> list[HardNode]:
    """The operations for which some of these values are made hard, and their gradients. A gradient
    of what was made hard after its operation is not among them: levels may keep more of a result
    than its values, such as where it is zero."""
    found: list[HardNode] = []
    touched, replaced_results = set(names), set[str]()
    for position, node in enumerate(graph.nodes):
        kind, reads = vocabulary().get(node.op), {*node.references()}
        words = None if kind is None else HARD.get(kind.gradient_of or kind)
        if kind is None or words is None or touched.isdisjoint(reads):
            continue
        outputs = {value.name for value in node.outputs if value is not None}
        if kind.gradient_of is None:
            replaced_results |= outputs & {*names}
        elif not replaced_results.isdisjoint(reads):
            continue
        found.append(HardNode(position, words))
        touched |= outputs
    return found


def _harder(operator: Operator) -> Iterator[tuple[str, Harder]]:
    """The inputs of an operation that are made hard."""
    if isinstance(operator, BatchNorm | GroupMoments | LayerNorm):
        yield operator.x.name, partial(_of_variance, operator.epsilon)
    elif isinstance(operator, RmsNorm):
        for given in (operator.x, operator.residual):
            if isinstance(given, Ref):
                yield given.name, partial(_of_mean_square, operator.epsilon)
    elif isinstance(operator, MaxPool) and operator.indices:
        yield operator.x.name, _of_few_values
    elif isinstance(operator, BatchNormBackward | LayerNormBackward | RmsNormBackward):
        # It is divided by the small deviation: from layer to layer it would grow beyond float32.
        yield operator.gradient.name, partial(_of_mean_square, 1.0)


def _of_variance(variance: float, values: np.ndarray) -> np.ndarray:
    return _scaled(values, float(values.std(dtype=np.float64)), math.sqrt(variance))


def _of_mean_square(square: float, values: np.ndarray) -> np.ndarray:
    return _scaled(values, _root_mean_square(values), math.sqrt(square))


def _of_few_values(values: np.ndarray) -> np.ndarray:
    """Whole multiples of the root mean square."""
    size = _root_mean_square(values)
    return values if not size else np.round(values / values.dtype.type(size))


def _root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt(np.square(values, dtype=np.float64).mean()))


def _scaled(values: np.ndarray, size: float, wanted: float) -> np.ndarray:
    return values * values.dtype.type(wanted / size) if size else values
