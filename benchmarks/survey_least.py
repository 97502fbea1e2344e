"""The least that a captured graph needs on a machine if all functions of elements are computed
where their arguments are made, and nothing is moved for layout alone.

Each product, convolution, attention, norm, softmax, pooling, sum and lookup is one kernel: the
longer of its bytes and its operations at the machine's rates, plus a launch. Functions of elements
join the kernel that makes the last of their arguments. What depends on weights alone is computed
before the first iteration in inference. A training step ends with one kernel that reads gradients
and weights and writes weights.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from golow.lower.analysis.arithmetic import node_operations, value_bytes
from golow.lower.ir.graph import Graph, Node, Value

LAYOUTS = frozenset(
    "view reshape permute transpose expand slice select unsqueeze squeeze split chunk cat stack "
    "flatten contiguous clone t unflatten flip roll pad constant_pad_nd repeat unbind narrow alias "
    "detach copy movedim unfold pixel_shuffle pixel_unshuffle as_strided diagonal lift_fresh_copy "
    "_unsafe_view repeat_interleave split_with_sizes view_as expand_as swapaxes channel_shuffle "
    "_to_copy to lift_fresh slice_backward select_backward".split()
)
KERNELS = re.compile(
    "norm|softmax|pool|embedding|sum|mean|amax|amin|argm|(^|_)(var|std|max|min|any|all|prod)$|cum|"
    "sort|topk|gather|index|scatter|take|loss|upsample|interpolate|grid_sampler|fft|linalg|im2col|"
    "col2im|logsumexp|cdist|bincount|nonzero|unique|grouped_mm"
)
FLOATS = ("float32", "bfloat16", "float16")


class Rates(NamedTuple):
    """Of a machine: bytes and operations per second, seconds of a launch, and the bytes of an
    activation."""

    bytes: float
    operations: float
    launch: float
    item: int


class _Kernel:
    """What one kernel reads, writes and computes."""

    def __init__(self) -> None:
        self.operations = 0.0
        self.reads: dict[str, float] = {}
        self.writes: set[str] = set()


def least_seconds(graph: Graph, rates: Rates, trains: bool) -> float:
    """Seconds of an iteration of the cleaned graph."""
    kernels = _kernels(graph, rates, trains)
    sizes = {name: _size(value, rates) for name, value in graph.values().items()}
    total = 0.0
    for kernel in kernels:
        moved = sum(kernel.reads.values()) + sum(sizes[name] for name in kernel.writes)
        total += max(moved / rates.bytes, kernel.operations / rates.operations) + rates.launch
    if trains:
        parameters = sum(value_bytes(i.value) for i in graph.inputs if i.kind == "parameter")
        total += 3 * parameters / rates.bytes + rates.launch
    return total


def _kernels(graph: Graph, rates: Rates, trains: bool) -> list[_Kernel]:
    values = graph.values()
    made_by: dict[str, int] = {}  # by value, the kernel that makes it; of constants there is none
    sources: dict[str, tuple[str, ...]] = {}  # of what has another layout, what it is made of
    kernels: list[_Kernel] = []
    given = {"parameter", "buffer", "constant"}
    fixed = {i.value.name for i in graph.inputs if i.kind in given and not trains}
    for node in graph.nodes:
        outputs = [value.name for value in node.outputs if value is not None]
        read = list(dict.fromkeys(node.references()))
        if read and all(name in fixed for name in read):
            fixed.update(outputs)
            continue
        if _name(node) in LAYOUTS:
            sources.update(dict.fromkeys(outputs, tuple(read)))
            continue
        operations = node_operations(node, values)
        makers = [made_by[name] for name in _origins(read, sources) if name in made_by]
        if operations or _is_kernel(node):
            kernels.append(_Kernel())
            own = len(kernels) - 1
        elif makers:
            own = max(makers)
        else:
            continue  # of inputs alone: its reader computes it
        kernels[own].operations += operations
        made_by.update(dict.fromkeys(outputs, own))
        for name in read:
            origins = _origins([name], sources)
            if all(made_by.get(origin) == own for origin in origins):
                continue
            whole = sum(_size(values[origin], rates) for origin in origins)
            kernels[own].reads[name] = min(_size(values[name], rates), whole)
            for origin in origins:
                if made_by.get(origin, own) != own:
                    kernels[made_by[origin]].writes.add(origin)
    for output in graph.outputs:
        for origin in _origins([output.name], sources):
            if origin in made_by:
                kernels[made_by[origin]].writes.add(origin)
    return kernels


def _origins(names: list[str], sources: dict[str, tuple[str, ...]]) -> list[str]:
    """What the values are made of by layout alone."""
    found: dict[str, None] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in sources:
            waiting += sources[name]
        else:
            found[name] = None
    return list(found)


def _is_kernel(node: Node) -> bool:
    name = _name(node)
    if name in ("batch_norm", "_native_batch_norm_legit_no_training"):
        # In inference a function of elements: its fifth argument says whether it trains.
        return name == "batch_norm" and node.arguments[5:6] == (True,)
    return KERNELS.search(name) is not None


def _name(node: Node) -> str:
    """The operation without namespace and overload."""
    return node.op.split(".")[1] if "." in node.op else node.op


def _size(value: Value, rates: Rates) -> float:
    if value.dtype in FLOATS:
        return float(math.prod(value.shape) * rates.item)
    return value_bytes(value)
