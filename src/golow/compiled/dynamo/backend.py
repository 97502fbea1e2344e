"""The backend of ``torch.compile(model, backend="golow")``, which Dynamo calls with each graph.

AOTAutograd then traces forward and backward passes, moves changes of inputs out of them and
restores views of inputs, so that golow's graphs are pure functions of tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import TensorifyScalarRestartAnalysis, TorchDynamoException
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._guards import TracingContext

from golow.compiled.dynamo.backend_report import opened
from golow.compiled.dynamo.device import OF_CUDNN, device_of, probed, traced_for
from golow.compiled.dynamo.draws import apart
from golow.compiled.dynamo.partition import with_pools_recomputed
from golow.compiled.dynamo.parts import Parts
from golow.compiled.dynamo.planned_graph import PlannedGraph, reason_of
from golow.compiled.dynamo.worth import why_left
from golow.records.errors import GolowError, Unsupported
from golow.records.workload import Mode


def golow(traced: fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """Return the callable for a graph of Dynamo. Raises `GolowError` for any option: there are
    none."""
    if options:
        raise GolowError(
            f"the backend golow has no {next(iter(options))}=",
            'call torch.compile(model, backend="golow"), with only dynamic= or fullgraph=.',
        )
    found = probed(device_of(inputs))
    why = "" if found.available else f"{found.missing}: {found.fix}"
    try:
        why = why or why_left(traced, inputs)
        if not why:
            return _by_autograd(traced, inputs)
    except (TorchDynamoException, TensorifyScalarRestartAnalysis):
        raise  # Dynamo's own ways to begin again
    except Exception as error:  # the user's program goes on without us
        why = f"AOTAutograd: {reason_of(error)}"
    opened("whole", _operations(traced)).note(why)
    return traced.forward


def _by_autograd(traced: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    device = device_of(inputs)
    parts = Parts()
    compile_by = aot_autograd(
        fw_compiler=_compiler("forward", "train", device, parts),
        bw_compiler=_compiler("backward", "train", device, parts),
        inference_compiler=_compiler("inference", "infer", device, parts),
        partition_fn=with_pools_recomputed,
        decompositions=OF_CUDNN,
    )
    with traced_for(device):
        compiled: Callable[..., Any] = compile_by(traced, inputs)
    if any(isinstance(item, torch.SymInt) for item in inputs):
        return compiled  # at other sizes there may be a plan
    return parts.unless_refused(compiled, traced.forward)


def _compiler(
    kind: str, mode: Mode, device: torch.device, parts: Parts
) -> Callable[..., Callable[..., Any]]:
    """In training every step changes the weights, so they are ordinary inputs there: reordering
    them would cost what oneDNN's layouts save. On a GPU they always are, because the host would
    have to wait for the GPU to see whether they have changed."""

    def compiler(graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        record = opened(kind, _operations(graph))
        try:
            drawing = apart(graph)
        except Unsupported as error:
            record.note(error.reason)
            parts.add(kind, record, lambda: True)
            return make_boxed_func(graph.forward)
        kept = mode == "infer" and device.type == "cpu"
        weights = _unchanged_weights() if kept else ()
        planned = PlannedGraph(graph, drawing, mode, weights, device, record)
        parts.add(kind, record, planned.is_refused)
        return make_boxed_func(planned)

    return compiler


def _unchanged_weights() -> list[int]:
    """Places of parameters and buffers that the graph does not change."""
    context = TracingContext.try_get()
    found = None if context is None else context.fw_metadata
    if found is None:
        return []
    changed = {k for k, item in enumerate(found.input_info) if item.mutates_data}
    return [k for k in found.static_input_indices if k not in changed]


def _operations(graph: fx.GraphModule) -> int:
    return sum(node.op.startswith("call_") for node in graph.graph.nodes)
