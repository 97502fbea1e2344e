"""Buffers that a forward pass changes in place, as state that the graph receives and returns."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec
from torch import Tensor, nn

from golow.lower.aten.aliasing import SharedMemory, overwritten
from golow.lower.aten.translation import Captured
from golow.lower.ir.graph import Graph, GraphInput, GraphOutput
from golow.lower.ir.rewriting import rewritten


def return_changed_buffers(
    captured: Captured, module: nn.Module, shared: Collection[str] = ()
) -> Captured:
    """Return what the graph's operations in place leave in buffers as further outputs.

    Such an output has the name of the buffer's own value here;
    `golow.lower.aten.functional.make_functional` gives it that of the new content. torch.export
    takes a buffer that the forward pass reaches by another way than its name, such as a list of
    caches, for a constant: one that is changed is named again. Other constants that are changed
    stay as they are, and the levels refuse them. shared: buffers that other graphs of the module
    change; one that only reads them returns them, too, so that they are state there.
    """
    changed = dict.fromkeys((*_changed(captured.graph), *_held(captured, module, shared)))
    graph = _with_held_buffers(captured, module, changed)
    buffers = {item.value.name: item for item in graph.inputs if item.kind == "buffer"}
    read = (name for name, item in buffers.items() if item.target in shared)
    names = dict.fromkeys((*_changed(graph), *read))
    outputs = tuple(
        GraphOutput(name=name, kind="buffer", target=buffers[name].target)
        for name in names
        if name in buffers
    )
    return captured._replace(
        graph=msgspec.structs.replace(graph, outputs=(*graph.outputs, *outputs))
    )


def _changed(graph: Graph) -> Iterator[str]:
    """The first values of the memory that operations in place change."""
    memory = SharedMemory(graph)
    for node in graph.nodes:
        memory.run(node)
        if (written := overwritten(node)) is not None:
            yield memory.first(written)


def _held(captured: Captured, module: nn.Module, names: Collection[str]) -> Iterator[str]:
    """The values of constants that are buffers of these names."""
    keys = {_key(module.get_buffer(name)) for name in names}
    for item in captured.graph.inputs:
        held = captured.constants.get(item.target) if item.kind == "constant" else None
        if held is not None and _key(held) in keys:
            yield item.value.name


def _with_held_buffers(captured: Captured, module: nn.Module, changed: dict[str, None]) -> Graph:
    """The graph with changed constants that are buffers of the module as such; a buffer that it
    reads by its name, too, is one value."""
    graph, buffers = captured.graph, {_key(t): name for name, t in module.named_buffers()}
    named = {item.target: item.value.name for item in graph.inputs if item.kind != "constant"}
    inputs: list[GraphInput] = []
    renamed: dict[str, str] = {}
    for item in graph.inputs:
        name, held = item.value.name, captured.constants.get(item.target)
        constant = item.kind == "constant" and held is not None and name in changed
        target = buffers.get(_key(held)) if constant and held is not None else None
        if target is None:
            inputs.append(item)
        elif target in named:
            renamed[name] = named[target]
        else:
            known = {"number": None, "lists": ""}
            buffer = msgspec.structs.replace(item, kind="buffer", target=target, **known)
            inputs.append(buffer)
    return msgspec.structs.replace(rewritten(graph, {}, renamed), inputs=tuple(inputs))


def _key(tensor: Tensor) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride()
