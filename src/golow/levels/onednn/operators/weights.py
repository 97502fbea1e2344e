"""What is computed from weights alone, once, when a plan for inference is loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from golow.levels.onednn.builder import Builder, Operator
from golow.levels.onednn.library import Descriptor
from golow.lower.graph import Argument, Node, Ref


def folded_weight(build: Builder, node: Node) -> None:
    """weight * scale / sqrt(variance + epsilon), in float64, rounded once."""
    weight, *norm, epsilon = node.arguments

    def run(given: list[Any], result: Any) -> None:
        weight, scale, variance = given
        factor = _factor(scale, variance, epsilon)
        factor = factor.reshape(-1, *[1] * (weight.ndim - 1))
        # One channel after another: float64 copies of all would double what loading needs.
        for channel in range(len(weight)):
            result[channel] = weight[channel].astype(np.float64) * factor[channel]

    _once(build, node, [weight, *norm], run)


def folded_bias(build: Builder, node: Node) -> None:
    """(bias - mean) * scale / sqrt(variance + epsilon) + shift, in float64, rounded once."""
    *terms, epsilon = node.arguments

    def run(given: list[Any], result: Any) -> None:
        bias, scale, shift, mean, variance = given
        centred = (0.0 if bias is None else bias.astype(np.float64)) - mean.astype(np.float64)
        found = centred * _factor(scale, variance, epsilon)
        result[...] = found if shift is None else found + shift

    _once(build, node, terms, run)


def trimmed(build: Builder, node: Node) -> None:
    """The taps of a kernel in these ranges of rows and columns."""
    weight, rows, columns = node.arguments

    def run(given: list[Any], result: Any) -> None:
        result[...] = given[0][:, :, slice(*rows), slice(*columns)]  # type: ignore[misc]

    _once(build, node, [weight], run)


def _factor(scale: Any, variance: Any, epsilon: Argument) -> Any:
    factor = 1 / np.sqrt(variance.astype(np.float64) + epsilon)
    return factor if scale is None else factor * scale.astype(np.float64)


def _once(
    build: Builder,
    node: Node,
    arguments: list[Argument],
    run: Callable[[list[Any], Any], None],
) -> None:
    """A step on row-major arrays, None in the place of an argument that is not there."""
    present = [isinstance(argument, Ref) for argument in arguments]
    tensors = [build.plain(argument) for argument in arguments if isinstance(argument, Ref)]
    output = node.outputs[0]
    assert output is not None  # noqa: S101
    result = build.new(output.name, output.shape, Descriptor.plain(output.shape))

    def call(*arrays: Any) -> None:
        *found, target = arrays
        rest = iter(found)
        run([next(rest) if there else None for there in present], target)

    build.array_call(call, tensors, [result])
    build.define(0, result)


OPERATORS: dict[str, Operator] = {
    "golow.folded_weight": folded_weight,
    "golow.folded_bias": folded_bias,
    "golow.trimmed": trimmed,
}
