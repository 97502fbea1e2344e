"""From a module to the lowered graph of one batch size. Importing this takes PyTorch a second."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from torch import Tensor, nn

from golow.levels.called.one_size import OneSize
from golow.levels.called.target import Target
from golow.lower.analysis.liveness import state_outputs
from golow.lower.aten.translation import Captured
from golow.lower.capture.capture import capture_inference, capture_step
from golow.lower.ir.clean_up import CLEAN_UP, eliminate_dead_code
from golow.lower.ir.graph import Graph
from golow.lower.ir.pass_runner import apply
from golow.records.workload import ModelSource, Workload


def lowered(module: nn.Module, inputs: tuple[Tensor, ...], target: Target) -> OneSize:
    """Capture ``module(*inputs)`` and run the level's passes. Raises `GolowError` for what torch
    cannot capture."""
    name = type(module).__name__
    return _lowered(name, capture_inference(name, module, inputs), inputs, target)


def lowered_step(
    module: nn.Module, inputs: tuple[Tensor, ...], target: Target, shared: Collection[str] = ()
) -> OneSize:
    """Lower a step: the buffers that the module changes in place are state, and those that its
    steps share."""
    name = type(module).__name__
    captured = capture_step(name, module, inputs, shared=shared)
    one = _lowered(name, captured, inputs, target)
    return one._replace(graph=_without_unread_state(one.graph, shared))


def _lowered(name: str, captured: Captured, inputs: tuple[Tensor, ...], target: Target) -> OneSize:
    workload = Workload(
        model=name,
        source=ModelSource(kind="pickle", name=name),
        mode="infer",
        batch=inputs[0].shape[0] if inputs[0].dim() else 1,
        inputs=(),
        threads=target.threads,
        precision=target.precision,
    )
    graph = apply(apply(captured.graph, CLEAN_UP), target.passes(workload))
    return OneSize(graph, captured.constants)


def _without_unread_state(graph: Graph, shared: Collection[str]) -> Graph:
    """Drop new content of buffers that every step writes before it reads them, such as a length
    that is set to the position. shared: buffers that other steps read."""
    read = {name for node in graph.nodes for name in node.references()}
    inputs = state_outputs(graph)
    outputs = tuple(
        item
        for item in graph.outputs
        if item.kind != "buffer"
        or item.target in shared
        or inputs.get(item.name, item.name) in read
    )
    return eliminate_dead_code(msgspec.structs.replace(graph, outputs=outputs))
