"""A graph of AOTAutograd at concrete sizes, as a golow graph and a list of its outputs."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from golow.compiled.dynamo.returned import Returned, as_recorded, returned
from golow.levels.called.target import Target
from golow.lower.aten.decomposition import lenient
from golow.lower.aten.translation import Ends, translate
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import Graph
from golow.lower.ir.pass_runner import apply
from golow.records.errors import Unsupported
from golow.records.workload import Mode, ModelSource, Workload


class ConcreteGraph(NamedTuple):
    """graph: after the level's passes. constants: tensors that it reads besides its inputs.
    returned: the source of each output of the fx graph."""

    graph: Graph
    constants: Mapping[str, Tensor]
    returned: Returned


def concrete(
    name: str,
    mode: Mode,
    call: fx.GraphModule,
    given: Sequence[Any],
    weights: Sequence[int],
    target: Target,
) -> ConcreteGraph:
    """Trace ``call(*given)`` and run the level's passes. weights: positions of the inputs that
    plans keep in their own layouts; all others are inputs of each call. Raises `Unsupported` for
    what the level cannot run, `GolowError` for what a golow graph cannot express, and any error of
    PyTorch."""
    start = time.perf_counter()
    places = [place for place, item in enumerate(given) if isinstance(item, Tensor)]
    traced = _traced(call if target.device.type == "cpu" else for_cpu(call), given, places)
    inputs = traced.graph.find_nodes(op="placeholder")
    found = as_recorded(returned(traced, dict(zip(inputs, places, strict=True))), call)
    kinds = ["parameter" if place in weights else "input" for place in places]
    targets = _targets(places, weights)
    ends = Ends(
        list(zip(inputs, kinds, targets, strict=True)),
        [(node, "output", str(position)) for position, node in enumerate(found.made)],
    )
    captured = translate(name, mode, nn.Module(), traced, ends, {}, start)
    workload = Workload(
        model=name,
        source=ModelSource(kind="pickle", name=name),
        mode=mode,
        batch=1,
        inputs=(),
        threads=target.threads,
        precision=target.precision,
    )
    # Inputs are row-major for golow, which PyTorch's may not be: there, a view was possible.
    graph = apply(apply(lenient(captured.graph), CLEAN_UP), target.passes(workload))
    target.require_runnable(graph)
    _require_forms(graph, found)
    return ConcreteGraph(graph, captured.constants, found)


def _require_forms(graph: Graph, found: Returned) -> None:
    """Raise `Unsupported` if the graph returns shapes or types different from PyTorch's, whose
    memory a plan writes, or computes with empty tensors."""
    values = graph.values()
    read = [values[name] for node in graph.nodes for name in node.references()]
    if any(0 in value.shape for value in read):
        raise Unsupported("onednn", "an operation reads a tensor without elements")
    for item in graph.outputs:
        made, form = values[item.name], found.forms[int(item.target)]
        if (made.shape, f"torch.{made.dtype}") != (tuple(form.shape), str(form.dtype)):
            raise Unsupported(
                "onednn", f"an output has shape {made}; PyTorch's has {tuple(form.shape)}"
            )


def _targets(places: Sequence[int], weights: Sequence[int]) -> list[str]:
    """Names of the inputs: a weight's position, or for other inputs their number among them."""
    found, number = [], 0
    for place in places:
        found.append(str(place) if place in weights else str(number))
        number += place not in weights
    return found


def for_cpu(call: fx.GraphModule) -> fx.GraphModule:
    """The graph as one of tensors on the CPU."""
    own = copy.deepcopy(call)
    for module in own.modules():
        for name, item in list(vars(module).items()):
            if isinstance(item, Tensor):
                setattr(module, name, item.cpu())
        if isinstance(module, fx.GraphModule):
            for node in module.graph.nodes:
                node.args, node.kwargs = pytree.tree_map(_cpu_for_gpu, (node.args, node.kwargs))
            module.recompile()
    return own.cpu()


def _cpu_for_gpu(item: Any) -> Any:
    is_gpu = isinstance(item, torch.device) and item.type == "cuda"
    return torch.device("cpu") if is_gpu else item


def _traced(
    call: Callable[..., Any], given: Sequence[Any], places: Sequence[int]
) -> fx.GraphModule:
    """The calls of ATen at these sizes. Numbers among the inputs become part of the graph."""

    def on_tensors(*tensors: Tensor) -> Any:
        whole = list(given)
        for place, tensor in zip(places, tensors, strict=True):
            whole[place] = tensor
        return call(*whole)

    with FakeTensorMode(allow_non_fake_inputs=True):  # on the CPU, where golow's graphs begin
        fakes = [
            torch.empty_strided(
                given[k].shape, given[k].stride(), dtype=given[k].dtype, device="cpu"
            )
            for k in places
        ]
        traced = make_fx(on_tensors, _allow_non_fake_inputs=True)(*fakes)
    traced.graph.eliminate_dead_code()
    return traced
