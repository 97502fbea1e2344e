"""Turns a graph into steps that oneDNN executes: where each value is stored, in which layout, and
which reorders are needed. ``operators/`` has what each operation does."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.bindings.constants import (
    DST,
    FORWARD_INFERENCE,
    FORWARD_TRAINING,
    SCRATCHPAD,
    SRC,
)
from golow.levels.direct.onednn.bindings.library import Descriptor, Engine, OneDnnError
from golow.levels.direct.onednn.bindings.primitive import Primitive
from golow.levels.direct.onednn.kernels import Kernel
from golow.levels.direct.onednn.steps.built_plan import (
    DTYPES,
    ArrayCall,
    Built,
    Call,
    KernelCall,
    PrimitiveCall,
    Switches,
    Tensor,
)
from golow.levels.direct.onednn.steps.views import Views
from golow.lower.analysis.liveness import last_reads, state_outputs
from golow.lower.ir.graph import Graph, GraphInput, GraphOutput, InputKind, Ref, Value
from golow.lower.ir.operator import PREFIX, read
from golow.lower.plan.memory_traffic import SCRATCH
from golow.lower.plan.plan import Buffer, Place, Step, make_plan
from golow.records.errors import Unsupported
from golow.records.workload import KEPT

LEVEL = "onednn"
# Place of parameters and what is computed from them alone, until all steps are known.
UNDECIDED: Place = "once"

Chooser = Callable[[int], int]
Note = TypeVar("Note")


class Builder:
    """Builds the steps of one graph, node by node.

    layout_of: the format tag (ANY, CHANNELS_LAST, a block's) for the convolution at a position of
    the graph; for a linear layer it stands for a way to compute it. generates: whether kernels can
    be compiled here.
    """

    def __init__(
        self,
        graph: Graph,
        engine: Engine,
        layout_of: Chooser,
        switches: Switches,
        generates: bool = False,
    ) -> None:
        self.graph, self.engine, self.layout_of = graph, engine, layout_of
        self.switches, self.generates = switches, generates
        self.forward_kind = FORWARD_INFERENCE if graph.mode == "infer" else FORWARD_TRAINING
        self.position = 0
        self.node = graph.nodes[0]
        self.views = Views(self)
        self._notes: dict[tuple[str, type], object] = {}
        self._values: dict[str, list[Tensor]] = {}
        self._buffers: list[Buffer] = []
        self._steps: list[Step] = []
        self._calls: list[Call] = []
        self._nodes: list[int] = []
        self._made_at: dict[str, int] = {}  # the step that wrote a value's memory
        self._written: dict[int, int] = {}  # the step that last wrote a buffer
        self._inputs: dict[tuple[str, str], Tensor] = {}
        self._constants: dict[int, np.ndarray] = {}
        self._all_values = graph.values()
        self._sources = {item.value.name: item for item in graph.inputs}
        self._groups, self._last_reads = last_reads(graph)
        self._state_of = state_outputs(graph)

    def build(self, implemented: Mapping[str, Implementation]) -> Built:
        """Build all steps of a graph whose operators are all implemented. Raises `Unsupported` for
        shapes that the library refuses."""
        for position, node in enumerate(self.graph.nodes):
            self.position, self.node = position, node
            implementation = implemented[node.op]
            try:
                implementation.build(self, read(node, implementation.operator))
            except OneDnnError as error:
                reason = f"{node.op}: {error}"
                raise Unsupported(LEVEL, reason, node.name, node.module) from error
        self._keep_state()
        self._copy_passed_inputs()
        kept = [self._named(item.name).buffer for item in self._final_outputs()]
        self._decide_places()
        outputs: dict[tuple[str, str], tuple[Tensor, int]] = {
            (item.kind, item.target): (self._named(item.name), self._at(item.name))
            for item in self.graph.outputs
        }
        return Built(
            plan=make_plan(self.graph.name, self._steps, self._buffers, kept),
            calls=tuple(self._calls),
            nodes=tuple(self._nodes),
            inputs=self._inputs,
            outputs=outputs,
            constants=self._constants,
        )

    # ------------------------------------------------------------ values

    def value(self, reference: Ref) -> Value:
        """Return what the graph says about a value, without allocating its memory."""
        return self._all_values[reference.name]

    def output(self, index: int = 0) -> Value:
        """Return the current node's value of that index, which must have a reader."""
        found = self.node.outputs[index]
        if found is None:
            raise LookupError(f"value {index} of {self.node.name} has no reader")
        return found

    def is_read(self, index: int) -> bool:
        """Whether any node or graph output reads the current node's value of that index."""
        return self.node.outputs[index] is not None

    def output_name(self, index: int = 0) -> str:
        """Return the name of the current node's value, a generated one if nothing reads it."""
        value = self.node.outputs[index] if index < len(self.node.outputs) else None
        return f"{self.node.name}.{index}" if value is None else value.name

    def tensor(self, reference: Ref) -> Tensor:
        """Return a value as it was made."""
        return self._named(reference.name)

    def wanted(self, reference: Ref, layout: Descriptor) -> Tensor:
        """Return a value in this layout, reordered if needed (once for all its readers).

        A parameter that training changes takes the layout of its first reader.
        """
        name = reference.name
        item = self._sources.get(name)
        if name not in self._values and item is not None and self._is_state(item.kind):
            self._take_input(item, layout)
        made = self._named(name)
        for tensor in self._values[name]:
            if tensor.layout == layout:
                return tensor
        if len(made.layout.shape) == len(layout.shape):
            copy = self.reordered(made, layout)
        else:  # a weight with groups: [K, C, R, S] for the graph, [G, K/G, C, R, S] for oneDNN
            copy = self._regrouped(made, layout)
        self._values[name].append(copy)
        return copy

    def _regrouped(self, made: Tensor, layout: Descriptor) -> Tensor:
        if made.layout.is_plain:
            return self.reordered(made._replace(descriptor=Descriptor.plain(layout.shape)), layout)
        copy = self.reordered(made, layout.reshaped(made.layout.shape))
        return copy._replace(descriptor=layout)

    def plain(self, reference: Ref) -> Tensor:
        """Return a value in row-major order."""
        tensor = self.tensor(reference)
        if tensor.descriptor is None:
            return tensor
        return self.wanted(reference, Descriptor.plain(tensor.shape))

    def reordered(self, tensor: Tensor, layout: Descriptor) -> Tensor:
        """Return a copy in another layout."""
        copy = self.new(self._buffers[tensor.buffer].name, tensor.shape, layout)
        self._reorder(tensor, copy)
        return copy

    def new(
        self,
        name: str,
        shape: Sequence[int],
        descriptor: Descriptor | None = None,
        dtype: str = "float32",
        place: Place = "arena",
    ) -> Tensor:
        """Allocate memory for a value; the step that writes it decides its place."""
        size = math.prod(shape) * np.dtype(DTYPES[dtype]).itemsize
        size = descriptor.bytes if descriptor is not None else size
        self._buffers.append(Buffer(name, size, place))
        return Tensor(len(self._buffers) - 1, tuple(shape), dtype, descriptor)

    def buffer(self, tensor: Tensor) -> Buffer:
        """Return the memory of a tensor."""
        return self._buffers[tensor.buffer]

    def constant(self, name: str, array: np.ndarray) -> Tensor:
        """Allocate a float32 constant with this content, row-major."""
        data = np.ascontiguousarray(array, dtype=np.float32)
        tensor = self.new(name, data.shape, Descriptor.plain(data.shape), place=UNDECIDED)
        self._constants[tensor.buffer] = data
        return tensor

    def define(self, index: int, tensor: Tensor) -> None:
        """Make this tensor the current node's value of that index."""
        value = self.node.outputs[index]
        if value is not None:
            self.keep(value.name, tensor._replace(shape=value.shape))

    def keep(self, name: str, tensor: Tensor) -> None:
        """Make this tensor the value of that name."""
        self._values[name] = [tensor]
        self._made_at[name] = self._written.get(tensor.buffer, -1)

    def note(self, name: str, note: object) -> None:
        """Store a note under a name, for the node that computes the gradient."""
        self._notes[(name, type(note))] = note

    def noted(self, name: str, kind: type[Note]) -> Note:
        """Return the note of that kind under a name. Raises LookupError if there is none."""
        found = self._notes.get((name, kind))
        if not isinstance(found, kind):
            raise LookupError(f"there is no {kind.__name__} for {name}")
        return found

    def layouts_made(self, shape: tuple[int, ...]) -> Iterator[Descriptor]:
        """Yield the layouts of the values of this shape, the latest first."""
        for first, *_ in reversed(self._values.values()):
            if first.shape == shape and first.descriptor is not None:
                yield first.descriptor

    def share_memory(self, one: Ref, other: Ref) -> bool:
        """Whether two values share their memory."""
        return self._group(one.name) == self._group(other.name)

    def dies(self, reference: Ref) -> bool:
        """Whether the value's memory is free after the current node."""
        in_arena = self._buffers[self.tensor(reference).buffer].place == "arena"
        return in_arena and self._is_read_last(reference.name)

    def in_place_or_new(self, reference: Ref, tensor: Tensor, index: int = 0) -> Tensor:
        """Return memory for a result in the tensor's layout: the argument's own if it dies here."""
        if self.dies(reference):
            return tensor
        return self.new(self.output_name(index), tensor.shape, tensor.descriptor)

    def state_for(self, index: int) -> Tensor | None:
        """Return the memory of the parameter, momentum or buffer that the current node's value
        updates; None if it updates none, or if the old content is still needed."""
        value = self.node.outputs[index]
        source = self._state_of.get(value.name) if value is not None else None
        if source is None:
            return None
        return self._named(source) if self._is_read_last(source) else None

    def _named(self, name: str) -> Tensor:
        self.views.copy(name)
        if name not in self._values:
            item = self._sources[name]
            floating = item.value.dtype == "float32"
            self._take_input(item, Descriptor.plain(item.value.shape) if floating else None)
        return self._values[name][0]

    def _group(self, name: str) -> str:
        """Return the value that owns this value's memory."""
        return self._groups.get(name, name)

    def _is_read_last(self, name: str) -> bool:
        """Whether no node after the current one reads the value's memory."""
        return self._last_reads.get(self._group(name), -1) <= self.position

    # ------------------------------------------------------------ steps

    def call(
        self,
        primitive: Primitive,
        reads: Mapping[int, Tensor],
        writes: Mapping[int, Tensor],
        operation: str = "",
        adds_to: Tensor | None = None,
    ) -> None:
        """Add a primitive as a step; only this step uses its scratchpad. adds_to: what the memory
        of the result holds before, if the primitive reads it."""
        size = primitive.scratchpad
        scratch = {}
        if size.bytes:
            scratch[SCRATCHPAD] = self.new(f"{self.node.name}{SCRATCH}", (size.bytes // 4,), size)
        everything = {**reads, **writes, **scratch}
        self._add(
            PrimitiveCall(primitive, everything),
            [*reads.values(), *([] if adds_to is None else [adds_to])],
            [*writes.values(), *scratch.values()],
            operation or self._operation,
            primitive.implementation,
        )

    def array_call(
        self, function: Callable[..., None], reads: Sequence[Tensor], writes: Sequence[Tensor]
    ) -> None:
        """Add a function of row-major NumPy arrays as a step; it gets ``reads``, ``writes``."""
        call = ArrayCall(function, (*reads, *writes))
        self._add(call, reads, writes, self._operation, "numpy")

    def kernel(self, kernel: Kernel, reads: Sequence[Tensor], writes: Sequence[Tensor]) -> None:
        """Add a generated kernel as a step; its pointers are ``reads``, ``writes``."""
        call = KernelCall(kernel, (*reads, *writes))
        self._add(call, reads, writes, self._operation, "generated")

    def _reorder(self, source: Tensor, target: Tensor) -> None:
        primitive = Primitive(self.engine, "reorder", source.layout, target.layout)
        self.call(primitive, {SRC: source}, {DST: target}, "reorder")

    @property
    def _operation(self) -> str:
        return self.node.op.removeprefix(PREFIX)

    def _add(
        self,
        call: Call,
        reads: Sequence[Tensor],
        writes: Sequence[Tensor],
        operation: str,
        implementation: str,
    ) -> None:
        places = {self._buffers[t.buffer].place for t in reads}
        once = places <= {UNDECIDED} and self.graph.mode == "infer"
        if once:
            for tensor in writes:
                buffer = self._buffers[tensor.buffer]
                self._buffers[tensor.buffer] = buffer._replace(place=UNDECIDED)
        self._written |= {tensor.buffer: len(self._steps) for tensor in writes}
        self._calls.append(call)
        self._nodes.append(self.position)
        self._steps.append(
            Step(
                operation,
                (self.node.module, *self.node.absorbed),
                self.node.phase,
                tuple(tensor.operand for tensor in reads),
                tuple(tensor.operand for tensor in writes),
                implementation,
                once,
            )
        )

    # ------------------------------------------------------------ the graph's ends

    def _is_state(self, kind: InputKind) -> bool:
        if kind in KEPT:
            return True
        return self.graph.mode == "train" and kind in ("parameter", "buffer")

    def _take_input(self, item: GraphInput, descriptor: Descriptor | None) -> None:
        value = item.value
        place: Place = UNDECIDED
        if item.kind in ("input", "target"):
            place = "input"
        elif self._is_state(item.kind) or item.kind == "learning_rate":
            place = "state"
        tensor = self.new(value.name, value.shape, descriptor, value.dtype, place)
        self._values[value.name] = [tensor]
        self._inputs[(item.kind, item.target)] = tensor

    def _keep_state(self) -> None:
        """Copy new contents of parameters and buffers that were not written in place."""
        for item in self.graph.outputs:
            if item.name not in self._state_of or item.name in self._sources:
                continue
            state, made = self._named(self._state_of[item.name]), self._named(item.name)
            if made.buffer != state.buffer:
                self._copy(made, state)

    def _copy_passed_inputs(self) -> None:
        """An output that is an input, or a view of one, gets its own memory: where an input lies
        changes with the batch."""
        for item in self._final_outputs():
            made = self._named(item.name)
            if self._buffers[made.buffer].place == "input":
                copy = self.new(item.name, made.shape, made.descriptor, made.dtype)
                self._copy(made, copy)
                self.keep(item.name, copy)

    def _copy(self, source: Tensor, target: Tensor) -> None:
        if source.descriptor is None:
            self.array_call(lambda read, written: np.copyto(written, read), [source], [target])
        else:
            self._reorder(source, target)

    def _at(self, name: str) -> int:
        """The position of the step in an iteration that makes the value; -1 if it is there when
        loading is over."""
        position = self._made_at.get(name, -1)
        return -1 if position >= 0 and self._steps[position].once else position

    def _final_outputs(self) -> list[GraphOutput]:
        return [item for item in self.graph.outputs if item.kind in ("output", "loss")]

    def _decide_places(self) -> None:
        """Keep what iterations read, but not what only loading reads."""
        lasting = {
            operand.buffer for step in self._steps if not step.once for operand in step.reads
        } | {self._named(item.name).buffer for item in self._final_outputs()}
        for index in lasting:
            if self._buffers[index].place == UNDECIDED:
                self._buffers[index] = self._buffers[index]._replace(place="constant")
