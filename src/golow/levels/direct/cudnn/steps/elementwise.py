"""Steps that compute a formula elementwise, in the layout of the operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from golow.levels.direct.cudnn.shared_kernels.pointwise import Operand, pointwise
from golow.levels.direct.cudnn.steps.built_plan import Tensor
from golow.levels.direct.formulas.activation_formulas import with_activation
from golow.lower.ir.graph import Activation, Ref

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


def activated(
    build: Builder, tensors: Sequence[Tensor], result: Tensor, activation: Activation | None
) -> None:
    """Add a step: activation(sum of the tensors). All tensors have the same layout."""
    total = " + ".join("abcde"[: len(tensors)])
    apply(build, with_activation(total, activation), tensors, result, "activation")


def apply(
    build: Builder,
    expression: str,
    tensors: Sequence[Tensor],
    result: Tensor,
    operation: str = "",
) -> None:
    """Add a step: a formula over tensors. Each tensor has the result's layout, or is one number, or
    has one number for each innermost channel. operation: its name, unless it is the node's."""
    channels = innermost(result)
    operands = [Operand(tensor.dtype, _kind(tensor, result)) for tensor in tensors]
    kernel = pointwise([expression], operands, [result.dtype], result.elements, channels)
    build.steps.kernel(kernel, tensors, [result], operation)


def innermost(tensor: Tensor) -> int:
    """Return how many elements are contiguous before another index changes."""
    if tensor.layout.order == "channels_last":
        return tensor.layout.channels
    if tensor.layout.order == "transposed":
        return tensor.shape[-2]
    return tensor.shape[-1] if tensor.shape else 1


def in_place_or_new(build: Builder, reference: Ref, tensor: Tensor) -> Tensor:
    """Return memory for a result in the tensor's layout: the argument's own if it dies here, and no
    other argument is a view of it."""
    own = build.values.tensor(reference).buffer == tensor.buffer
    if own and build.values.dies(reference) and build.current.reads_once(reference):
        return tensor
    return build.memory.new(build.current.output_name(), tensor.shape, tensor.layout)


def _kind(tensor: Tensor, result: Tensor) -> Literal["full", "scalar", "channel"]:
    if tensor.elements == result.elements:
        return "full"
    return "scalar" if tensor.elements == 1 else "channel"
