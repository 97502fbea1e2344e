"""Follows the plans of networks without a GPU: golow's own kernels run on this processor, as
`cuda_host.py` does it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from golow.levels.direct.cudnn.build.builder import Builder
from golow.levels.direct.cudnn.build.finish_training import finish
from golow.levels.direct.cudnn.build.step_list import StepList
from golow.levels.direct.cudnn.build.values import Values
from golow.levels.direct.cudnn.planning import arranged, implemented
from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.layouts import NUMPY_TYPES, packed, unpacked
from golow.levels.direct.cudnn.problems.precision import TYPES, Types
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.steps.built_plan import (
    ARRIVALS,
    Built,
    Call,
    FlatCall,
    KernelCall,
    Tensor,
)
from golow.lower.ir.graph import Graph, Node, Ref
from golow.lower.ir.verify import run_node
from golow.lower.plan.plan import SHARED, Step
from support.direct.cuda_host import run

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines

Named = dict[str, np.ndarray]
# Files of kernels that run on this processor, too.
RUN_HERE = {
    "adaptive_average_pool", "batch_norm", "batch_norm_backward", "cache_update",
    "cached_attention", "copies", "cross_entropy", "elements", "fused_pointwise", "fused_reduce",
    "fused_softmax", "group_norm", "joined_copies", "layer_norm", "linear_recurrence",
    "packed_rows", "pad", "recurrent", "reduction", "resample", "rms_norm", "roll", "row_product",
    "softmax", "step_attention", "take", "weight_norm",
}  # fmt: skip


class Machine:
    """The memory of a plan of one batch, and its generated kernels. Memory holds NaN until
    something is written; counters are zero, as all memory of a GPU at first."""

    def __init__(self, built: Built) -> None:
        self.built = built
        self._memory = {place: _memory(size) for place, size in built.plan.sizes.items()}
        self.arrivals = self._memory.get(ARRIVALS, np.zeros(0, np.uint8))
        self.arrivals[...] = 0
        self._inputs = {
            index: _memory(buffer.bytes)
            for index, buffer in enumerate(built.plan.buffers)
            if buffer.place == "input"
        }
        self._waiting = {fill.tensor.buffer: fill for fill in built.fills}

    def fill(self, named: Named, buffers: Iterable[int]) -> None:
        """Write those of these buffers that are filled when loading, unless they have been."""
        for value, tensor in filter(None, (self._waiting.pop(index, None) for index in buffers)):
            number = isinstance(value, float)
            self.write(tensor, np.array(value, np.float32) if number else named[str(value)])

    def is_waiting(self, tensor: Tensor) -> bool:
        """True if the tensor's memory is still to be filled."""
        return tensor.buffer in self._waiting

    def begin(self, given: dict[tuple[str, str], np.ndarray], named: Named) -> None:
        """End loading: write what is left of it, and inputs and state by kind and target. What
        loading alone uses, and the arena, hold NaN again."""
        self.fill(named, tuple(self._waiting))
        for place in SHARED:
            self._memory[place][...] = 0xFF
        for key, tensor in self.built.inputs.items():
            if key in given:
                batched = key[0] in ("input", "target")
                self.write(tensor, given[key][None] if batched else given[key])

    def call(self, call: Call) -> bool:
        """Run a generated kernel, or take the batch; False for a call that needs a GPU."""
        if not isinstance(call, KernelCall):
            return False
        if call.kernel.expression.startswith("fetch_"):
            source, _, result = call.arguments
            assert source is not None and result is not None
            one = source._replace(shape=source.shape[1:])
            self.write(result, self.read(one))
            return True
        if not _runs_here(call.kernel):
            return False
        arrays = [None if tensor is None else self.seen(tensor) for tensor in call.arguments]
        run(call.kernel, arrays)
        return True

    def read(self, tensor: Tensor) -> np.ndarray:
        """The tensor's content in PyTorch's order."""
        if tensor.layout.order == "strided":
            return self._view(tensor).copy()
        flat = self.seen(tensor)[: tensor.layout.bytes(tensor.shape)]
        return unpacked(flat.view(NUMPY_TYPES[tensor.dtype]), tensor.shape, tensor.layout).copy()

    def write(self, tensor: Tensor, array: np.ndarray) -> None:
        """Fill a tensor, a view too."""
        if tensor.layout.order == "strided":
            self._view(tensor)[...] = array
            return
        content = packed(array.reshape(tensor.shape), tensor.layout).view(np.uint8)
        self.seen(tensor)[: content.size] = content

    def _view(self, tensor: Tensor) -> np.ndarray:
        memory = self.seen(tensor)
        item = ITEM_BYTES[tensor.dtype]
        whole = memory[: len(memory) // item * item].view(NUMPY_TYPES[tensor.dtype])
        steps = [item * step for step in tensor.layout.steps]
        return np.lib.stride_tricks.as_strided(whole, tensor.shape, steps)

    def seen(self, tensor: Tensor) -> np.ndarray:
        """The memory from the tensor's first byte on. It is within its buffer."""
        buffer, item = self.built.plan.buffers[tensor.buffer], ITEM_BYTES[tensor.dtype]
        if buffer.place == "input":
            return self._inputs[tensor.buffer][tensor.offset :]
        end = tensor.offset + tensor.layout.extent(tensor.shape) * item
        assert end <= buffer.bytes, f"{tensor} goes beyond the {buffer.bytes} bytes of its buffer"
        return self._memory[buffer.place][buffer.offset + tensor.offset :]


def _runs_here(kernel: Kernel) -> bool:
    """True for the files that run here, but for clusters of several blocks."""
    name = kernel.expression
    clusters = name.startswith("at_once<") and not name.endswith(", 1>")
    return kernel.file.stem in RUN_HERE and not clusters


def _memory(size: int) -> np.ndarray:
    """Bytes that begin at a multiple of 256, as on a GPU; as floats they are NaN."""
    whole = np.full(size + 512, 0xFF, np.uint8)
    return whole[-whole.ctypes.data % 256 :][: size + 256]


class OwnedSteps(StepList):
    """Remembers for which node of the graph each step is. owners: their positions."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.owners: list[int] = []

    def _add(self, *arguments: Any) -> None:
        super()._add(*arguments)
        self.owners.append(self._current.position)

    def flat(self, *arguments: Any, **further: Any) -> None:
        super().flat(*arguments, **further)
        self.owners.append(self._current.position)


class NamedValues(Values):
    """Remembers what each node defines. defined: by the node's position, names and tensors."""

    def __init__(self, build: Builder) -> None:
        super().__init__(build)
        self.defined: dict[int, list[tuple[str, Tensor]]] = defaultdict(list)

    def define(self, index: int, tensor: Tensor) -> None:
        super().define(index, tensor)
        value = self._current.node.outputs[index]
        if value is not None:
            self.defined[self._current.position].append((value.name, self._made[value.name][0]))


class Followed(Builder):
    """A builder that remembers whose each call is, and where each node's values are stored."""

    steps: OwnedSteps
    values: NamedValues

    def __init__(self, graph: Graph, engines: Engines, types: Types, batches: int) -> None:
        super().__init__(graph, engines, types, batches)
        self.steps = OwnedSteps(self.current, self.memory, self.loading, batches)
        self.values = NamedValues(self)


def follow(
    graph: Graph,
    engines: Engines,
    tensors: dict[str, torch.Tensor],
    machine_of: Callable[[Built], Machine] = Machine,
    limit: float = 1e-4,
) -> None:
    """Build the graph's plan in float32 and run it node by node. Generated kernels run here; what a
    node computes by libraries or other kernels is PyTorch's result, written to where the plan says.
    Every value that a step reads must be PyTorch's where the plan says, when it is made, and every
    gradient when it is used. First runs what runs when loading, without inputs; what it made must
    still be there in the iteration.

    tensors: inputs and weights by the names of their values. machine_of: a machine that runs more.
    limit: of each number's distance, relative and absolute.
    """
    grouped = arranged(graph)
    builder = Followed(grouped, engines, TYPES["default"], 1)
    machine = machine_of(builder.build(implemented(), finish))
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    given = {(i.kind, i.target): arrays[i.value.name] for i in graph.inputs}
    steps: dict[int, list[tuple[Step, Call]]] = defaultdict(list)
    plan = machine.built.plan
    for owner, step, call in zip(
        builder.steps.owners, plan.steps, machine.built.calls, strict=True
    ):
        steps[owner].append((step, call))
    last_read = {tensor.buffer: len(grouped.nodes) for tensor in machine.built.outputs.values()}
    for owner, step in zip(builder.steps.owners, plan.steps, strict=True):
        for operand in step.reads:
            last_read[operand.buffer] = max(owner, last_read.get(operand.buffer, 0))
    values = dict(tensors)
    for node in grouped.nodes:
        values |= _made(node, values)
    named = {name: _array(tensor) for name, tensor in values.items()}
    for loading in (True, False):
        unnamed: set[str] = set()  # results of a library that a later node turns and names
        for position, node in enumerate(grouped.nodes):
            done = [name not in unnamed for name in node.references()]
            for step, call in steps[position]:
                if step.once != loading:
                    continue
                if loading:
                    machine.fill(named, (operand.buffer for operand in step.reads))
                done = [*done, machine.call(call)]
                if isinstance(call, FlatCall):
                    _assert_gradients(machine, call, grouped, values)
            if not builder.values.defined[position] and not all(done):
                unnamed |= {value.name for value in node.outputs if value is not None}
            for name, tensor in builder.values.defined[position]:
                constant = builder.current.is_constant(Ref(name=name))
                if loading > constant or (constant and _is_gone(machine, tensor, loading)):
                    continue
                if last_read.get(tensor.buffer, -1) < position:  # only its shape is needed
                    continue
                expected = named[name]
                if constant == loading and not all(done):
                    machine.write(tensor, expected.astype(NUMPY_TYPES[tensor.dtype]))
                found = machine.read(tensor)
                message = f"{node.name}: {name} by {node.op}"
                np.testing.assert_allclose(found, expected, rtol=limit, atol=limit, err_msg=message)
        if loading:
            machine.begin(given, named)
    assert not machine.arrivals.any(), "a counter is not as the next iteration needs it"


def _array(tensor: torch.Tensor) -> np.ndarray:
    """The numbers of a tensor; NumPy has none of e4m3."""
    found = tensor.detach()
    return (found.float() if found.dtype == torch.float8_e4m3fn else found).numpy()


def _is_gone(machine: Machine, tensor: Tensor, loading: bool) -> bool:
    """True if a constant is not where it was made: NumPy's are written when they are first read,
    and what only loading reads is gone afterwards."""
    place = machine.built.plan.buffers[tensor.buffer].place
    return machine.is_waiting(tensor) if loading else place in SHARED


def _assert_gradients(
    machine: Machine, call: FlatCall, graph: Graph, values: dict[str, torch.Tensor]
) -> None:
    """What an update is about to read is right."""
    steps, calls = machine.built.plan.steps, machine.built.calls
    read = {operand.buffer for operand in steps[calls.index(call)].reads}
    for item in graph.outputs:
        tensor = machine.built.outputs[item.kind, item.target]
        if item.kind == "gradient" and tensor.buffer in read:
            found, expected = machine.read(tensor), values[item.name].numpy()
            message = f"the gradient of {item.target}"
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4, err_msg=message)


def _made(node: Node, values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    results = zip(node.outputs, run_node(node, values), strict=True)
    return {value.name: tensor for value, tensor in results if value is not None}
