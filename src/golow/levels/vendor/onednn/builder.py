"""From a graph to steps that oneDNN executes: where values lie, in which layout, and what is
reordered in between. What each operation does is in ``operators/``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from golow.levels.vendor.onednn.constants import DST, SCRATCHPAD, SRC
from golow.levels.vendor.onednn.library import Descriptor, Engine, OneDnnError
from golow.levels.vendor.onednn.primitive import Primitive
from golow.lower.graph import Argument, Graph, Node, Ref
from golow.lower.lifetimes import last_reads, state_outputs
from golow.lower.plan import Buffer, Operand, Place, Plan, Step, make_plan
from golow.record import Unsupported

LEVEL = "onednn"
# Parameters and what is computed from them alone: decided when all steps are known.
UNDECIDED: Place = "once"
ARRAY_BYTES = {"float32": 4, "int64": 8, "bool": 1}


class Tensor(NamedTuple):
    """A value in memory. descriptor is None for what oneDNN does not compute with (integers)."""

    buffer: int
    shape: tuple[int, ...]
    dtype: str
    descriptor: Descriptor | None

    @property
    def layout(self) -> Descriptor:
        """The descriptor, which a value that oneDNN reads has."""
        assert self.descriptor is not None  # noqa: S101
        return self.descriptor


class PrimitiveCall(NamedTuple):
    """Run a primitive on these arguments."""

    primitive: Primitive
    arguments: Mapping[int, Tensor]


class ArrayCall(NamedTuple):
    """Run a function on NumPy arrays over these tensors, which are all row-major."""

    function: Callable[..., None]
    arguments: Sequence[Tensor]


class Built(NamedTuple):
    """A plan and what executes it: one call a step; the positions in the graph of the nodes that
    the steps come from; and where the graph's ends are."""

    plan: Plan
    calls: tuple[PrimitiveCall | ArrayCall, ...]
    nodes: tuple[int, ...]
    inputs: dict[tuple[str, str], Tensor]
    outputs: dict[tuple[str, str], tuple[Tensor, int]]
    constants: dict[int, np.ndarray]


class Switches:
    """What may change between iterations without a new plan."""

    dropout = True

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)


Operator = Callable[["Builder", Node], None]
Chooser = Callable[[int], int]


class Builder:
    """Builds the steps of one graph, node after node.

    layout_of: the format tag (ANY, CHANNELS_LAST, a block's) in which the convolution at a
    position of the graph computes.
    """

    def __init__(
        self, graph: Graph, engine: Engine, layout_of: Chooser, switches: Switches
    ) -> None:
        self.graph, self.engine, self.layout_of = graph, engine, layout_of
        self.switches = switches
        self.position = 0
        self.node = graph.nodes[0]
        self.saved: dict[str, Any] = {}  # what batch norm's forward keeps for its backward
        self.workspaces: dict[str, Tensor] = {}  # what forward leaves for backward, by value
        self._values: dict[str, list[Tensor]] = {}
        self._buffers: list[Buffer] = []
        self._steps: list[Step] = []
        self._calls: list[PrimitiveCall | ArrayCall] = []
        self._nodes: list[int] = []
        self._made_at: dict[str, int] = {}  # step that wrote a value's memory
        self._written: dict[int, int] = {}  # step that last wrote a buffer
        self._inputs: dict[tuple[str, str], Tensor] = {}
        self._constants: dict[int, np.ndarray] = {}
        self._all_values = graph.values()
        self._sources = {item.value.name: item for item in graph.inputs}
        self._groups, self._last_reads = last_reads(graph)
        self._state_of = state_outputs(graph)

    def build(self, operators: Mapping[str, Operator]) -> Built:
        """All steps. Raises `Unsupported` for an operation that there is no operator for."""
        for position, node in enumerate(self.graph.nodes):
            self.position, self.node = position, node
            operator = operators.get(self.node.op)
            if operator is None:
                raise self.unsupported(f"{self.node.op} has no form in oneDNN here")
            self._require_known_dtypes()
            try:
                operator(self, self.node)
            except OneDnnError as error:
                raise self.unsupported(f"{self.node.op}: {error}") from error
        self._keep_state()
        kept = [self.tensor(item.name).buffer for item in self._final_outputs()]
        self._decide_places()
        plan = make_plan(self.graph.name, self._steps, self._buffers, kept)
        outputs: dict[tuple[str, str], tuple[Tensor, int]] = {
            (item.kind, item.target): (self.tensor(item.name), self._made_at.get(item.name, -1))
            for item in self.graph.outputs
        }
        return Built(
            plan, tuple(self._calls), tuple(self._nodes), self._inputs, outputs, self._constants
        )

    def _require_known_dtypes(self) -> None:
        names = [*self.node.references(), *(v.name for v in self.node.outputs if v is not None)]
        for dtype in dict.fromkeys(self._all_values[name].dtype for name in names):
            if dtype not in ARRAY_BYTES:
                raise self.unsupported(f"{self.node.op} on {dtype}")

    def unsupported(self, reason: str) -> Unsupported:
        """The error that names the current node."""
        return Unsupported(LEVEL, reason, self.node.name, self.node.module)

    # ------------------------------------------------------------ values

    def tensor(self, argument: Argument | str) -> Tensor:
        """A value where and how it was made."""
        name = argument.name if isinstance(argument, Ref) else argument
        assert isinstance(name, str)  # noqa: S101
        if name not in self._values:
            item = self._sources[name]
            shape, dtype = item.value.shape, item.value.dtype
            descriptor = Descriptor.plain(shape) if dtype == "float32" else None
            self._take_input(name, shape, dtype, descriptor)
        return self._values[name][0]

    def wanted(self, argument: Argument, layout: Descriptor) -> Tensor:
        """A value in this layout, reordered (once for all who want it so) where it is not.

        Parameters that training changes take the layout of who asks first.
        """
        assert isinstance(argument, Ref)  # noqa: S101
        name = argument.name
        item = self._sources.get(name)
        if name not in self._values and item is not None and self._is_state(item.kind):
            self._take_input(name, item.value.shape, item.value.dtype, layout)
        made = self.tensor(name)
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

    def plain(self, argument: Argument) -> Tensor:
        """A value in row-major order."""
        tensor = self.tensor(argument)
        if tensor.descriptor is None:
            return tensor
        return self.wanted(argument, Descriptor.plain(tensor.shape))

    def reordered(self, tensor: Tensor, layout: Descriptor) -> Tensor:
        """A copy in another layout."""
        copy = self.new(self._buffers[tensor.buffer].name, tensor.shape, layout)
        primitive = Primitive(self.engine, "reorder", tensor.layout, layout)
        self.call(primitive, {SRC: tensor}, {DST: copy}, "reorder")
        return copy

    def new(
        self,
        name: str,
        shape: Sequence[int],
        descriptor: Descriptor | None = None,
        dtype: str = "float32",
        place: Place = "arena",
    ) -> Tensor:
        """Memory for a value; its place is decided by the step that writes it."""
        size = int(np.prod(shape)) * ARRAY_BYTES[dtype]
        size = descriptor.bytes if descriptor is not None else size
        self._buffers.append(Buffer(name, size, place))
        return Tensor(len(self._buffers) - 1, tuple(shape), dtype, descriptor)

    def constant(self, name: str, array: np.ndarray) -> Tensor:
        """A float32 array that is known now, row-major."""
        data = np.ascontiguousarray(array, dtype=np.float32)
        tensor = self.new(name, data.shape, Descriptor.plain(data.shape), place=UNDECIDED)
        self._constants[tensor.buffer] = data
        return tensor

    def define(self, index: int, tensor: Tensor) -> None:
        """The current node's value of that index is this tensor."""
        value = self.node.outputs[index]
        if value is not None:
            self._values[value.name] = [tensor._replace(shape=value.shape)]
            self._made_at[value.name] = self._written.get(tensor.buffer, -1)

    def output_name(self, index: int = 0) -> str:
        """Name of the current node's value, a made-up one where nobody reads it."""
        value = self.node.outputs[index] if index < len(self.node.outputs) else None
        return f"{self.node.name}.{index}" if value is None else value.name

    def tensor_shape(self, argument: Argument) -> tuple[int, ...]:
        """Shape of a value, without asking for its memory yet."""
        assert isinstance(argument, Ref)  # noqa: S101
        if argument.name in self._values:
            return self.tensor(argument).shape
        return self._sources[argument.name].value.shape

    def share_memory(self, one: Argument, other: Argument) -> bool:
        """Whether two values look at the same memory."""
        names = [a.name for a in (one, other) if isinstance(a, Ref)]
        return len({self._groups.get(name, name) for name in names}) == 1

    def dies(self, argument: Argument) -> bool:
        """Whether nobody needs the value's memory after the current node."""
        assert isinstance(argument, Ref)  # noqa: S101
        group = self._groups.get(argument.name, argument.name)
        in_arena = self._buffers[self.tensor(argument).buffer].place == "arena"
        return in_arena and self._last_reads.get(group, -1) <= self.position

    def in_place_or_new(self, argument: Argument, tensor: Tensor, index: int = 0) -> Tensor:
        """Where to write a result of that tensor's layout: over the argument, if it dies here."""
        if self.dies(argument):
            return tensor
        return self.new(self.output_name(index), tensor.shape, tensor.descriptor)

    def state_for(self, index: int) -> Tensor | None:
        """The memory of the parameter, momentum or buffer whose new content the current node's
        value is; None if it is none, or if the old content is still needed."""
        value = self.node.outputs[index]
        source = self._state_of.get(value.name) if value is not None else None
        if source is None:
            return None
        group = self._groups.get(source, source)
        return self.tensor(source) if self._last_reads.get(group, -1) <= self.position else None

    # ------------------------------------------------------------ steps

    def call(
        self,
        primitive: Primitive,
        reads: Mapping[int, Tensor],
        writes: Mapping[int, Tensor],
        operation: str = "",
    ) -> None:
        """Add a primitive as a step; its scratchpad is a buffer of this step alone."""
        size = primitive.scratchpad
        scratch = {}
        if size.bytes:
            scratch[SCRATCHPAD] = self.new(f"{self.node.name}.scratch", (size.bytes // 4,), size)
        everything = {**reads, **writes, **scratch}
        self._add(
            PrimitiveCall(primitive, everything),
            list(reads.values()),
            [*writes.values(), *scratch.values()],
            operation or self.node.op.split(".")[1],
            primitive.implementation,
        )

    def array_call(
        self, function: Callable[..., None], reads: Sequence[Tensor], writes: Sequence[Tensor]
    ) -> None:
        """Add a function on row-major NumPy arrays as a step: what was read, then the results."""
        operation = self.node.op.split(".")[1]
        self._add(ArrayCall(function, (*reads, *writes)), reads, writes, operation, "numpy")

    def _add(
        self,
        call: PrimitiveCall | ArrayCall,
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
                tuple(_operand(tensor) for tensor in reads),
                tuple(_operand(tensor) for tensor in writes),
                implementation,
                once,
            )
        )

    # ------------------------------------------------------------ the graph's ends

    def _is_state(self, kind: str) -> bool:
        if kind == "momentum":
            return True
        return self.graph.mode == "train" and kind in ("parameter", "buffer")

    def _take_input(
        self, name: str, shape: tuple[int, ...], dtype: str, descriptor: Descriptor | None
    ) -> None:
        item = self._sources[name]
        place: Place = UNDECIDED
        if item.kind in ("input", "target"):
            place = "input"
        elif self._is_state(item.kind) or item.kind == "learning_rate":
            place = "state"
        tensor = self.new(name, shape, descriptor, dtype, place)
        self._values[name] = [tensor]
        self._inputs[(item.kind, item.target)] = tensor

    def _keep_state(self) -> None:
        """Copy new contents of parameters and buffers that were not written in place."""
        for item in self.graph.outputs:
            if item.name not in self._state_of or item.name in self._sources:
                continue
            state = self.tensor(self._state_of[item.name])
            made = self.tensor(item.name)
            if made.buffer == state.buffer:
                continue
            if made.descriptor is None:
                self.array_call(_copy, [made], [state])
            else:
                primitive = Primitive(self.engine, "reorder", made.layout, state.layout)
                self.call(primitive, {SRC: made}, {DST: state}, "reorder")

    def _final_outputs(self) -> list[Any]:
        return [item for item in self.graph.outputs if item.kind in ("output", "loss")]

    def _decide_places(self) -> None:
        """What an iteration reads is kept; what only loading reads is not."""
        lasting = {
            operand.buffer for step in self._steps if not step.once for operand in step.reads
        } | {self.tensor(item.name).buffer for item in self._final_outputs()}
        for index in lasting:
            if self._buffers[index].place == UNDECIDED:
                self._buffers[index] = self._buffers[index]._replace(place="constant")


def _operand(tensor: Tensor) -> Operand:
    layout = str(tensor.descriptor) if tensor.descriptor is not None else tensor.dtype
    return Operand(tensor.buffer, tensor.shape, layout)


def _copy(source: np.ndarray, target: np.ndarray) -> None:
    target[...] = source
