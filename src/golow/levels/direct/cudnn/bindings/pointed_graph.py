"""A CUDA graph that reads and writes at other addresses in each launch: those of the caller.

The parameters of the kernels that have such an address are changed in the executable graph when it
differs from that of the launch before, which costs the host about a microsecond each and the GPU
nothing; the documentation of cuGraphExecKernelNodeSetParams states that launches that are already
enqueued keep theirs. Calls that run in every launch go to the driver by ctypes, with arguments that
were converted before.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cuda.bindings import driver

from golow.levels.direct.cudnn.bindings.device import Gpu
from golow.levels.direct.cudnn.bindings.pointed_kernels import Node, PointedKernels, Slot
from golow.levels.nvidia.memory import GpuError, Region, checked

WORD = 8  # bytes of an address
# CUDA_KERNEL_NODE_PARAMS_v2 in bytes, and where its pointer to the parameters is.
STRUCTURE_BYTES, KERNEL_PARAMS = 72, 40
INVALID_CONTEXT = int(driver.CUresult.CUDA_ERROR_INVALID_CONTEXT)

_library = ctypes.CDLL("libcuda.so.1")
_change_launched = _library.cuGraphExecKernelNodeSetParams_v2
_change_recorded = _library.cuGraphKernelNodeSetParams_v2
_launch = _library.cuGraphLaunch
_is_capturing = _library.cuStreamIsCapturing
_record = _library.cuEventRecord
_wait = _library.cuStreamWaitEvent


class Turns:
    """Orders the launches of graphs that use the same memory, and what else writes to it, in
    whatever streams they are."""

    def __init__(self) -> None:
        self._last: object = None  # owner of the launch that was recorded last
        flag = driver.CUevent_flags.CU_EVENT_DISABLE_TIMING
        self._event = checked(driver.cuEventCreate(flag), "cuEventCreate")
        self._event_at = ctypes.c_void_p(int(self._event))

    @contextmanager
    def taken(self, stream: int) -> Iterator[None]:
        """Let what is enqueued within the block wait for the launch before, and the next one for
        it."""
        at, owner = ctypes.c_void_p(stream), object()
        self.begin(at, owner)
        yield
        self.end(at, owner)

    def begin(self, stream: ctypes.c_void_p, owner: object) -> None:
        """Let the stream wait for the launch before, unless it had the same owner: the driver
        orders launches of one graph."""
        if owner is not self._last:
            _require(_wait(stream, self._event_at, 0), "cuStreamWaitEvent")
        self._last = None  # until this one is recorded

    def end(self, stream: ctypes.c_void_p, owner: object) -> None:
        """Let the next launch wait for this one."""
        _require(_record(self._event_at, stream), "cuEventRecord")
        self._last = owner

    def __del__(self) -> None:
        if (event := getattr(self, "_event", None)) is not None:
            driver.cuEventDestroy(event)


class PointedGraph:
    """The work that a function enqueues, as a graph whose memory at these places is exchanged.

    places: device memory that stands for the caller's while recording; nothing is read or written
    there afterwards. Only kernels that get an address as a separate parameter, or within a
    structure as it is, can be pointed elsewhere; golow's own kernels do. turns: of the graphs that
    use the same memory; the driver itself orders launches of one graph.
    """

    def __init__(
        self,
        gpu: Gpu,
        enqueue: Callable[[], None],
        places: Sequence[Region],
        turns: Turns | None = None,
    ) -> None:
        self._gpu, self._turns, self._owner = gpu, turns, object()
        self._recorded = gpu.record_graph(enqueue)
        self._launched = gpu.instantiate(self._recorded)
        self._executable = ctypes.c_void_p(int(self._launched))
        spans = [(place.address, place.address + place.size) for place in places]
        nodes = [node for node in _kernels(self._recorded, spans) if node.slots]
        self._kernels = PointedKernels(nodes)
        self.pointed = self._kernels.places
        self._addresses: list[int] = []  # that all kernels have, or none
        self._stream, self._stream_at = 0, ctypes.c_void_p(0)
        self._status = ctypes.c_int()
        self._status_at = ctypes.byref(self._status)

    def launch(self, addresses: Sequence[int], stream: int) -> None:
        """Enqueue it on a stream, with the memory at these addresses. In a stream that is being
        captured it becomes a part of that graph."""
        if stream != self._stream:
            self._stream, self._stream_at = stream, ctypes.c_void_p(stream)
        status = _is_capturing(self._stream_at, self._status_at)
        if status == INVALID_CONTEXT:  # the first call of this thread
            self._gpu.make_current()
            status = _is_capturing(self._stream_at, self._status_at)
        if status:
            _require(status, "cuStreamIsCapturing")
        if self._status.value:
            self._add_to(stream, addresses)
            return
        if addresses != self._addresses:
            before, self._addresses = self._addresses, []  # until all are set
            for node in self._kernels.point(before, addresses):
                status = _change_launched(self._executable, node.handle, node.parameters)
                if status:
                    _require(status, "cuGraphExecKernelNodeSetParams")
            self._addresses = list(addresses)
        if self._turns is not None:
            self._turns.begin(self._stream_at, self._owner)
        if status := _launch(self._executable, self._stream_at):
            _require(status, "cuGraphLaunch")
        if self._turns is not None:
            self._turns.end(self._stream_at, self._owner)

    def _add_to(self, stream: int, addresses: Sequence[int]) -> None:
        """Add it to the graph that the stream is captured into, after what is there."""
        self._addresses = []  # the parameters are those of another graph from here on
        for node in self._kernels.point([], addresses):
            _require(_change_recorded(node.handle, node.parameters), "cuGraphKernelNodeSetParams")
        _, _, graph, before, *_, count = checked(
            driver.cuStreamGetCaptureInfo(stream), "cuStreamGetCaptureInfo"
        )
        answer = driver.cuGraphAddChildGraphNode(graph, before, count, self._recorded)
        node = checked(answer, "cuGraphAddChildGraphNode")
        flag = driver.CUstreamUpdateCaptureDependencies_flags.CU_STREAM_SET_CAPTURE_DEPENDENCIES
        answer = driver.cuStreamUpdateCaptureDependencies(stream, [node], None, 1, int(flag))
        checked(answer, "cuStreamUpdateCaptureDependencies")

    def close(self) -> None:
        """Destroy the graph. It cannot be launched any more."""
        if (launched := getattr(self, "_launched", None)) is not None:
            driver.cuGraphExecDestroy(launched)
        if (recorded := getattr(self, "_recorded", None)) is not None:
            driver.cuGraphDestroy(recorded)
        self._launched = self._recorded = None

    __del__ = close


def _require(status: int, call: str) -> None:
    if status:
        checked((driver.CUresult(status),), call)


def _kernels(graph: Any, spans: Sequence[tuple[int, int]]) -> Iterator[Node]:
    """Yield every kernel of a graph with the addresses within these spans."""
    _, count = checked(driver.cuGraphGetNodes(graph, 0), "cuGraphGetNodes")
    handles, _ = checked(driver.cuGraphGetNodes(graph, count), "cuGraphGetNodes")
    for handle in handles[:count]:
        kind = checked(driver.cuGraphNodeGetType(handle), "cuGraphNodeGetType")
        if kind == driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL:
            yield _kernel(handle, spans)


def _kernel(handle: Any, spans: Sequence[tuple[int, int]]) -> Node:
    found = checked(driver.cuGraphKernelNodeGetParams(handle), "cuGraphKernelNodeGetParams")
    structure = ctypes.create_string_buffer(ctypes.string_at(found.getPtr(), STRUCTURE_BYTES))
    pointer = ctypes.c_uint64.from_buffer(structure, KERNEL_PARAMS)
    sizes = list(_parameter_sizes(found)) if pointer.value else []
    slots: list[Slot] = []
    values = []
    for index, size in enumerate(sizes):
        source = ctypes.c_uint64.from_address(pointer.value + WORD * index).value
        values.append(ctypes.create_string_buffer(ctypes.string_at(source, size), size))
        slots += _slots(values[-1], spans)
    pointers = (ctypes.c_uint64 * len(values))(*map(ctypes.addressof, values))
    if values:
        pointer.value = ctypes.addressof(pointers)
    return Node(ctypes.c_void_p(int(handle)), structure, tuple(slots), (values, pointers))


def _slots(value: Any, spans: Sequence[tuple[int, int]]) -> Iterator[Slot]:
    """Yield the addresses within a parameter."""
    for at in range(0, len(value) - WORD + 1, WORD):
        word = ctypes.c_uint64.from_buffer(value, at)
        for place, (start, end) in enumerate(spans):
            if start <= word.value < end:
                yield Slot(place, word.value - start, word)


def _parameter_sizes(launched: Any) -> Iterator[int]:
    """Yield the bytes of each parameter of a kernel."""
    by_function = int(launched.func) != 0
    ask = driver.cuFuncGetParamInfo if by_function else driver.cuKernelGetParamInfo
    kernel = launched.func if by_function else launched.kern
    index = 0
    while True:
        status, _, size = ask(kernel, index)
        if status == driver.CUresult.CUDA_ERROR_INVALID_VALUE:  # there are no more
            return
        if status != driver.CUresult.CUDA_SUCCESS:
            raise GpuError(f"cuKernelGetParamInfo: {status.name}")
        yield size
        index += 1
