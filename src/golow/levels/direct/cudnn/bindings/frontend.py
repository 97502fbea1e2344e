"""Convolutions and attention by cuDNN's graph API, through NVIDIA's Python front end.

A convolution with its bias, residual and activation is one operation graph, for which the library
finds or compiles one kernel; so is attention. https://docs.nvidia.com/deeplearning/cudnn/frontend/latest/
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

import cudnn

from golow.levels.direct.cudnn.bindings.attention_graph import (
    attention_operands,
    describe_attention,
)
from golow.levels.direct.cudnn.bindings.device import Gpu
from golow.levels.direct.cudnn.problems.epilogue import add_activation
from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.problems.products import AttentionProblem, Convolution
from golow.levels.direct.formulas.activation_formulas import NO_CLIP, RELU, Clip

# Identifiers of the operands in an operation graph.
IMAGE, WEIGHT, OUTPUT, BIAS, RESIDUAL = range(1, 6)

TYPES = {
    "float32": cudnn.data_type.FLOAT,
    "bfloat16": cudnn.data_type.BFLOAT16,
    "float16": cudnn.data_type.HALF,
}
Operation = Convolution | AttentionProblem

HEURISTICS = [cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK]


class Plan:
    """One of the library's ways to compute an operation."""

    kind = "cudnn"

    def __init__(
        self,
        graph: Any,
        index: int | None,
        operands: Sequence[int],
        handles: tuple[int, int],
        data: bytes | None = None,
    ) -> None:
        """data: what the plan was restored from; index is None then."""
        self._graph, self._index, self._handles, self._data = graph, index, handles, data
        self.operands = tuple(operands)
        if index is None:
            self.workspace = int(graph.get_workspace_size())
            self.name = "cudnn"
        else:
            self.workspace = int(graph.get_workspace_size_plan_at_index(index))
            self.name = f"cudnn {graph.get_plan_name_at_index(index)}"

    def run(self, addresses: Sequence[int], workspace: int, side: bool = False) -> None:
        """Enqueue it on these operands, in the order of `Convolution` or
        `AttentionProblem`."""
        pack, handle = dict(zip(self.operands, addresses, strict=True)), self._handles[side]
        if self._index is None:
            self._graph.execute(pack, workspace, handle=handle)
        else:
            self._graph.execute_plan_at_index(pack, workspace, self._index, handle=handle)

    def encode(self) -> bytes:
        """Return the compiled plan, for `Frontend.restore`."""
        if self._data is not None:
            return self._data
        # The graph serialises the plan that was built last.
        self._graph.build_plan_at_index(self._index)
        return bytes(self._graph.serialize())


_handles: WeakKeyDictionary[Gpu, tuple[Any, Any]] = WeakKeyDictionary()
"""cuDNN's handles on the streams of each GPU; they live as long as the process."""


def _handles_of(gpu: Gpu) -> tuple[Any, Any]:
    if gpu not in _handles:
        _handles[gpu] = handles = cudnn.create_handle(), cudnn.create_handle()
        for handle, stream in zip(handles, (gpu.stream, gpu.side), strict=True):
            cudnn.set_stream(handle=handle, stream=stream)
    return _handles[gpu]


class Frontend:
    """cuDNN on the two streams of one GPU."""

    def __init__(self, gpu: Gpu) -> None:
        self._handles = _handles_of(gpu)
        self.handle = self._handles[0]

    @property
    def version(self) -> str:
        """Version of the library itself, not of its front end."""
        return str(cudnn.backend_version())

    def plans(self, operation: Operation, most: int, workspace_limit: int) -> Iterator[Plan]:
        """Yield at most ``most`` plans, in the library's expected order of speed; none if it has
        none. Plans that need more bytes of workspace than the limit are skipped unless all plans
        do: some keep a copy of the weights' gradient for every image of a batch."""
        large, found = [], 0
        for plan in self._build(operation):
            if plan.workspace > workspace_limit:
                large.append(plan)
                continue
            yield plan
            found += 1
            if found == most:
                return
        if not found:
            yield from large[:most]

    def _build(self, operation: Operation) -> Iterator[Plan]:
        """Yield the plans; of gradients those that add up in a fixed order, if there are any. The
        others add parts in the order of their arrival, and give other bits in each run."""
        found = False
        if isinstance(operation, Convolution) and operation.direction != "forward":
            with suppress(RuntimeError):  # there are only others
                for plan in self._built(operation, [cudnn.numerical_note.NONDETERMINISTIC]):
                    found = True
                    yield plan
        if not found:
            yield from self._built(operation, [])

    def _built(self, operation: Operation, barred: list[Any]) -> Iterator[Plan]:
        """Yield the plans without these notes."""
        try:
            graph, operands = self._graph(operation, barred)
            graph.check_support()
        except cudnn.cudnnGraphNotSupportedError:
            return
        except RuntimeError:
            # Its runtime compiles an activation into the kernel, or fails; there is another way.
            if isinstance(operation, Convolution) and operation.activation is not None:
                return
            raise
        for index in range(graph.get_execution_plan_count()):
            try:
                graph.build_plan_at_index(index)
            except (cudnn.cudnnGraphNotSupportedError, RuntimeError):
                continue
            yield Plan(graph, index, operands, self._handles)

    def restore(self, operation: Operation, data: bytes) -> Plan:
        """Return the plan that an earlier process stored."""
        graph = cudnn.pygraph(handle=self.handle)
        graph.deserialize(self.handle, list(data))
        return Plan(graph, None, _operands(operation), self._handles, data)

    def _graph(self, operation: Operation, barred: list[Any]) -> tuple[Any, tuple[int, ...]]:
        graph = cudnn.pygraph(
            io_data_type=TYPES[operation.dtype],
            intermediate_data_type=cudnn.data_type.FLOAT,
            compute_data_type=cudnn.data_type.FLOAT,
            handle=self.handle,
        )
        if isinstance(operation, AttentionProblem):
            describe_attention(graph, operation)
        else:
            result = _describe(graph, operation)
            result.set_output(True).set_data_type(TYPES[operation.result])
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans(HEURISTICS)
        note = cudnn.numerical_note
        if isinstance(operation, Convolution) and operation.dtype == "float32":
            # To float16, in which a small gradient has no more than a few bits.
            barred = [*barred, note.DOWN_CONVERT_INPUTS]
        if isinstance(operation, Convolution) and operation.arithmetic == "ieee":
            barred = [*barred, note.TENSOR_CORE]
        if barred:
            graph.deselect_numeric_notes(barred)
        return graph, _operands(operation)


def _operands(operation: Operation) -> tuple[int, ...]:
    if isinstance(operation, AttentionProblem):
        return attention_operands(operation)
    if operation.direction == "backward_data":
        return OUTPUT, WEIGHT, IMAGE
    if operation.direction == "backward_weight":
        return IMAGE, OUTPUT, WEIGHT
    bias = (BIAS,) if operation.bias else ()
    residual = (RESIDUAL,) if operation.residual else ()
    return (IMAGE, WEIGHT, *bias, *residual, OUTPUT)


def _describe(graph: Any, operation: Convolution) -> Any:
    """Add the operation to the graph; return the tensor that it writes."""
    axes = len(operation.stride)
    geometry = {
        "pre_padding": list(operation.padding[:axes]),
        "post_padding": list(operation.padding[axes:]),
        "stride": list(operation.stride),
        "dilation": list(operation.dilation),
    }

    def tensor(shape: Sequence[int], uid: int, dtype: str) -> Any:
        return graph.tensor(
            dim=list(shape), stride=_strides(shape), data_type=TYPES[dtype], uid=uid
        )

    if operation.direction == "backward_data":
        loss = tensor(operation.output, OUTPUT, operation.dtype)
        weight = tensor(operation.weight, WEIGHT, operation.dtype)
        result = graph.conv_dgrad(loss=loss, filter=weight, **geometry)
        return _as(result, operation.image, IMAGE)
    image = tensor(operation.image, IMAGE, operation.dtype)
    if operation.direction == "backward_weight":
        loss = tensor(operation.output, OUTPUT, operation.dtype)
        result = graph.conv_wgrad(image=image, loss=loss, **geometry)
        return _as(result, operation.weight, WEIGHT)
    weight = tensor(operation.weight, WEIGHT, operation.dtype)
    result = graph.conv_fprop(image=image, weight=weight, **geometry)
    if operation.bias:
        bias = tensor((1, operation.output[1], *[1] * axes), BIAS, operation.dtype)
        result = graph.bias(input=result, bias=bias)
    if operation.residual:
        residual = tensor(operation.output, RESIDUAL, operation.result)
        result = graph.add(a=result, b=residual)
    result = add_activation(graph, _add_clip(graph, result, operation.clip), operation.activation)
    return _as(result, operation.output, OUTPUT)


def _add_clip(graph: Any, tensor: Any, clip: Clip) -> Any:
    if clip == NO_CLIP:
        return tensor
    if clip == RELU:
        return graph.relu(input=tensor)
    return graph.relu(input=tensor, lower_clip=clip[0], upper_clip=clip[1])


def _as(tensor: Any, shape: Sequence[int], uid: int) -> Any:
    return tensor.set_uid(uid).set_dim(list(shape)).set_stride(_strides(shape))


def _strides(shape: Sequence[int]) -> list[int]:
    """Return the strides of an NHWC tensor with the shape [N, C, ...]."""
    return list(Layout("", "channels_last", shape[1]).strides(shape))
