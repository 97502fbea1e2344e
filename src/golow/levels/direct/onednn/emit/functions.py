"""Steps that golow computes with NumPy, as calls of weight_arithmetic.h; and those that have none.

What depends on no weight needs no call: its result is a constant of the project.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from golow.levels.direct.onednn.build.load_once import Computed
from golow.levels.direct.onednn.build.values import copy_array
from golow.levels.direct.onednn.steps.built_plan import (
    ArrayCall,
    Built,
    KernelCall,
    PrimitiveCall,
    Tensor,
)
from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator
from golow.lower.operators.folded_batch_norm import FoldedBias, FoldedWeight
from golow.lower.operators.joined_weight import JoinedWeight
from golow.lower.operators.trimmed_weight import TrimmedWeight
from golow.lower.plan.plan import Step
from golow.records.errors import Unsupported


def not_emitted(built: Built) -> Iterator[Unsupported]:
    """Yield the steps of a plan that have no form in C++."""
    fixed = independent_of_weights(built)
    for position, (call, step) in enumerate(zip(built.calls, built.plan.steps, strict=True)):
        if isinstance(call, PrimitiveCall) and call.primitive.description.scales:
            layer = step.modules[0] or "the model"
            reason = f"{step.operation} of {layer} computes in whole numbers"
            yield Unsupported("onednn", reason)
        if isinstance(call, KernelCall) and call.beside:
            reason = f"{step.operation} of {step.modules[0] or 'the model'} draws random numbers"
            yield Unsupported("onednn", reason)
        if not isinstance(call, ArrayCall) or function_call(call) is not None:
            continue
        if position not in fixed or not _fills(built, call, step):
            reason = f"{step.operation} of {step.modules[0] or 'the model'} runs in NumPy"
            yield Unsupported("onednn", reason)


def independent_of_weights(built: Built) -> set[int]:
    """The positions of functions that run while weights are loaded and depend on none."""
    dependent = {
        tensor.buffer
        for (kind, _), tensor in built.inputs.items()
        if kind in ("parameter", "buffer")
    }
    found = set()
    for position, (call, step) in enumerate(zip(built.calls, built.plan.steps, strict=True)):
        if not step.once:
            continue
        if any(operand.buffer in dependent for operand in step.reads):
            dependent |= {operand.buffer for operand in step.writes}
        elif isinstance(call, ArrayCall):
            found.add(position)
    return found


def results(call: ArrayCall, step: Step) -> tuple[Tensor, ...]:
    """Arrays that a function writes: its last ones."""
    return tuple(call.arguments[len(call.arguments) - len(step.writes) :])


def _fills(built: Built, call: ArrayCall, step: Step) -> bool:
    """True if a function alone writes the whole buffers of its results."""
    for tensor in results(call, step):
        writers = sum(
            operand.buffer == tensor.buffer for each in built.plan.steps for operand in each.writes
        )
        whole = tensor.offset == 0 and tensor.bytes == built.plan.buffers[tensor.buffer].bytes
        if writers != 1 or not whole:
            return False
    return True


def function_call(call: ArrayCall) -> str | None:
    """The body of a function of ``p``, the pointers of the call's arrays; None if there is none."""
    *given, result = call.arguments
    last = f"p[{len(given)}]"
    if call.function is copy_array:
        return f"joined({{{{p[0], {given[0].bytes}}}}}, {last})"
    if isinstance(call.function, Computed):
        return _computed(call.function, given, result, last)
    return None


def _computed(computed: Computed, given: list[Tensor], result: Tensor, last: str) -> str | None:
    place = {name: f"p[{k}]" for k, name in enumerate(computed.names)}
    tensor = dict(zip(computed.names, given, strict=True))

    def at(reference: Ref | None) -> str:
        return "nullptr" if reference is None else place[reference.name]

    operator: Operator = computed.operator
    match operator:
        case FoldedWeight():
            rows = result.shape[0]
            columns = math.prod(result.shape[1:])
            arrays = ", ".join(map(at, (operator.weight, operator.scale, operator.variance)))
            return f"folded_weight({arrays}, {operator.epsilon!r}, {rows}, {columns}, {last})"
        case FoldedBias():
            fields = operator.bias, operator.scale, operator.shift, operator.mean, operator.variance
            count = math.prod(result.shape)
            return (
                f"folded_bias({', '.join(map(at, fields))}, {operator.epsilon!r}, {count}, {last})"
            )
        case TrimmedWeight():
            outer, inner, rows, columns = tensor[operator.weight.name].shape
            numbers = (outer * inner, rows, columns, *operator.rows, *operator.columns)
            return f"trimmed_weight({at(operator.weight)}, {', '.join(map(str, numbers))}, {last})"
        case JoinedWeight():
            parts = (f"{{{at(part)}, {tensor[part.name].bytes}}}" for part in operator.parts)
            return f"joined({{{', '.join(parts)}}}, {last})"
    return None
