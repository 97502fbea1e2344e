"""The GPU without a framework: a second stream, compiled kernels and CUDA graphs, by NVIDIA's
own Python bindings. Compiled kernels are cached on disk by source, architecture and compiler."""

from __future__ import annotations

import gc
import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from cuda.bindings import driver, nvrtc
from cuda.core import Device, LaunchConfig, ObjectCode, Program, ProgramOptions, launch
from cuda.pathfinder import find_nvidia_header_directory

from golow.levels.direct.cudnn.bindings.programmatic_edges import wait_for_ends
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.shared_kernels.early_launch import FIRST_ARCHITECTURE, waiting
from golow.levels.nvidia.memory import GpuError, Pinned, checked
from golow.levels.nvidia.stream import Stream
from golow.storage.cache import read_sealed, write_sealed

Graph = Any  # a CUDA graph, as the bindings return it


_ATTRIBUTE = driver.CUdevice_attribute
PROPERTIES = {
    "computeMajor": _ATTRIBUTE.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
    "computeMinor": _ATTRIBUTE.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
    "numSms": _ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
    "maxThreadsPerMultiprocessor": _ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
    "regsPerMultiprocessor": _ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR,
    "sharedMemPerMultiprocessor": (
        _ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
    ),
}

# Multiplications with addition that a multiprocessor of a recent GPU does in a cycle in float32,
# without tensor cores.
LANES = 128
# Sources that are compiled at the same time; the compiler takes some hundred MiB for each.
COMPILED_TOGETHER = 8


class Kernels(NamedTuple):
    """Compiled kernels: the GPU's code, and the names in it by the names in the source."""

    code: bytes
    symbols: dict[str, bytes]


@contextmanager
def _garbage_kept() -> Iterator[None]:
    """Let Python's collector wait. Destructors of what it finds free memory, events and graphs of
    CUDA, and some of these calls invalidate a capture in this thread."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _reserve_stacks(size: int) -> None:
    """Let the context reserve a stack of that many bytes for all threads that can run at once.

    Those that it has by itself take 1 KiB for each thread: 264 MiB on an H200, half of an empty
    context. The driver allocates stacks again for a kernel that needs them.
    https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__CTX.html (cuCtxSetLimit)
    """
    limit = driver.CUlimit.CU_LIMIT_STACK_SIZE
    checked(driver.cuCtxSetLimit(limit, size), "cuCtxSetLimit")


class Gpu(Stream):
    """A device, by default the first visible one, with two streams: the main stream, and a side
    stream for work that the main one need not wait for. cache: folder for compiled kernels.
    stack_bytes: what the context reserves for each thread; the driver gives more to a kernel that
    needs it. None leaves the context as the process has it."""

    def __init__(self, cache: Path, stack_bytes: int | None = 0, ordinal: int = 0) -> None:
        Device(ordinal).set_current()
        if stack_bytes is not None:
            _reserve_stacks(stack_bytes)
        super().__init__(ordinal)
        self._ordinal = ordinal
        self._side = self._device.create_stream()
        self.side = int(self._side.handle)
        major, minor = self._device.compute_capability
        self.architecture = f"sm_{major}{minor}"
        self._cache = cache
        self.notes: list[str] = []  # damaged entries of the cache
        self._functions: dict[tuple[str, str], Any] = {}
        self._names: set[bytes] = set()  # of these functions, in their code
        self._early = 10 * major + minor >= FIRST_ARCHITECTURE
        self._loaded: list[ObjectCode] = []  # a function does not keep its code alive

    def properties(self) -> dict[str, int]:
        """Properties of the device, by the names that torch.profiler gives them in a trace."""
        return {
            name: int(
                checked(driver.cuDeviceGetAttribute(wanted, self._ordinal), "cuDeviceGetAttribute")
            )
            for name, wanted in PROPERTIES.items()
        }

    def plain_ns(self, transferred: int, flops: int) -> float:
        """Nanoseconds in which memory could transfer that many bytes and the multiprocessors do the
        arithmetic in float32, whichever takes longer: what it can take without tensor cores."""
        bus, memory, multiprocessors, clock = (
            int(checked(driver.cuDeviceGetAttribute(wanted, self._ordinal), "cuDeviceGetAttribute"))
            for wanted in (
                _ATTRIBUTE.CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH,  # bits
                _ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE,  # kHz; two transfers a cycle
                _ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                _ATTRIBUTE.CU_DEVICE_ATTRIBUTE_CLOCK_RATE,  # kHz
            )
        )
        bandwidth = 2 * memory * bus / 8
        return 1e6 * max(transferred / bandwidth, flops / (2 * LANES * multiprocessors * clock))

    def upload_beside(self, address: int, pinned: Pinned, size: int) -> None:
        """Enqueue on the side stream a copy of the first bytes of pinned memory to the device."""
        answer = driver.cuMemcpyHtoDAsync(address, pinned.address, size, self.side)
        checked(answer, "cuMemcpyHtoDAsync")

    # ------------------------------------------------------------ kernels

    def compile(self, kernels: Iterable[Kernel]) -> None:
        """Make these kernels ready to launch. Each source that the cache does not have is compiled
        once, several at a time."""
        wanted: dict[str, set[str]] = defaultdict(set)
        asked = list(kernels)
        for kernel in asked:
            if (kernel.source, kernel.expression) not in self._functions:
                wanted[kernel.source].add(kernel.expression)
        for (source, expressions), code in zip(wanted.items(), self._codes(wanted), strict=True):
            self._loaded.append(code)
            for expression in expressions:
                self._functions[(source, expression)] = code.get_kernel(expression)
                self._names.add(bytes(code.symbol_mapping[expression]))
        for kernel in asked:
            if kernel.shared:
                self._reserve_shared(self._functions[(kernel.source, kernel.expression)])

    def _reserve_shared(self, function: Any) -> None:
        """Let a kernel have more than 48 KiB of shared memory, and all that a multiprocessor has
        besides what its code declares, so that two such kernels run side by side whatever each of
        them needs."""
        attribute = driver.CUfunction_attribute
        most = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        answer = driver.cuDeviceGetAttribute(most, self._ordinal)
        largest = int(checked(answer, "cuDeviceGetAttribute"))
        size = attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
        answer = driver.cuKernelGetAttribute(size, function.handle, self._ordinal)
        declared = int(checked(answer, "cuKernelGetAttribute"))
        wanted = {
            attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: largest - declared,
            attribute.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: 100,  # percent
        }
        for name, value in wanted.items():
            answer = driver.cuKernelSetAttribute(name, value, function.handle, self._ordinal)
            checked(answer, "cuKernelSetAttribute")

    def launch(self, kernel: Kernel, pointers: Sequence[int], side: bool = False) -> None:
        """Enqueue a kernel on these device addresses, on the main stream or the side stream."""
        function = self._functions.get((kernel.source, kernel.expression))
        if function is None:
            self.compile([kernel])
            function = self._functions[(kernel.source, kernel.expression)]
        config = LaunchConfig(
            grid=kernel.grid, block=kernel.block, shmem_size=kernel.shared,
            programmatic_stream_serialization=self._early,
        )  # fmt: skip
        stream = self._side if side else self._main
        launch(stream, config, function, *pointers, *kernel.scalars)

    def compiled(self, source: str, expressions: list[str]) -> Kernels:
        """These instantiations of a source, compiled for this GPU."""
        code = self._object_code(source, expressions)
        symbols = {name: bytes(symbol) for name, symbol in code.symbol_mapping.items()}
        return Kernels(bytes(code.code), symbols)

    def _codes(self, wanted: Mapping[str, set[str]]) -> list[ObjectCode]:
        """The machine code of these instantiations of each source."""
        threads = min(len(wanted), COMPILED_TOGETHER, len(os.sched_getaffinity(0)))
        if threads < 2:
            return [self._object_code(source, sorted(names)) for source, names in wanted.items()]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(self._object_code, wanted, map(sorted, wanted.values())))

    def _object_code(self, source: str, expressions: list[str]) -> ObjectCode:
        compiler = checked_compiler(nvrtc.nvrtcVersion())
        key = "\n".join((waiting(source), *expressions, self.architecture, str(compiler)))
        file = self._cache / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.kernels"
        if (data := read_sealed(file, self.notes)) is not None:
            kept = msgspec.msgpack.decode(data, type=Kernels)
            return ObjectCode.from_cubin(kept.code, symbol_mapping=kept.symbols)
        code = compile_source(source, expressions, self.architecture)
        symbols = {name: bytes(symbol) for name, symbol in code.symbol_mapping.items()}
        write_sealed(file, msgspec.msgpack.encode(Kernels(bytes(code.code), symbols)))
        return code

    # ------------------------------------------------------------ graphs and events

    def capture(self, enqueue: Callable[[], None]) -> Graph:
        """Return what the function enqueues, as one CUDA graph that is ready to launch."""
        captured = self.record_graph(enqueue)
        graph = self.instantiate(captured)
        checked(driver.cuGraphDestroy(captured), "cuGraphDestroy")
        return graph

    def record_graph(self, enqueue: Callable[[], None]) -> Graph:
        """Return what the function enqueues, as a CUDA graph that can be changed; the caller
        destroys it."""
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        checked(driver.cuStreamBeginCapture(self.stream, mode), "cuStreamBeginCapture")
        try:
            with _garbage_kept():
                enqueue()
        except BaseException:  # it states more than the status of the capture that it ended
            driver.cuStreamEndCapture(self.stream)
            raise
        captured = checked(driver.cuStreamEndCapture(self.stream), "cuStreamEndCapture")
        wait_for_ends(captured, self._names)
        return captured

    def instantiate(self, captured: Graph) -> Graph:
        """Return a recorded graph as one that is ready to launch."""
        graph = checked(driver.cuGraphInstantiate(captured, 0), "cuGraphInstantiate")
        checked(driver.cuGraphUpload(graph, self.stream), "cuGraphUpload")
        return graph

    def destroy(self, graph: Graph) -> None:
        """Free a captured graph."""
        checked(driver.cuGraphExecDestroy(graph), "cuGraphExecDestroy")

    def replay(self, graph: Graph) -> None:
        """Enqueue a captured graph."""
        checked(driver.cuGraphLaunch(graph, self.stream), "cuGraphLaunch")

    def record_beside(self, event: Any) -> None:
        """Record the event on the side stream."""
        checked(driver.cuEventRecord(event, self.side), "cuEventRecord")

    def fork(self, stream: int | None = None) -> None:
        """Make the side stream, or another one, wait for all work now on the main stream."""
        self._order(self.stream, self.side if stream is None else stream)

    def beside(self, stream: int | None = None) -> Any:
        """Return an event after all work now on the side stream, or another one."""
        event = self.event()
        on = self.side if stream is None else stream
        checked(driver.cuEventRecord(event, on), "cuEventRecord")
        return event

    def join(self, event: Any, stream: int | None = None) -> None:
        """Make the main stream, or another one, wait for an event of another stream."""
        on = self.stream if stream is None else stream
        checked(driver.cuStreamWaitEvent(on, event, 0), "cuStreamWaitEvent")

    def _order(self, first: int, second: int) -> None:
        event = self.event()
        checked(driver.cuEventRecord(event, first), "cuEventRecord")
        checked(driver.cuStreamWaitEvent(second, event, 0), "cuStreamWaitEvent")
        self.forget(event)

    def time(
        self, enqueue: Callable[[], None], runs: int, before: Callable[[], None] | None = None
    ) -> float:
        """Replay what the function enqueues ``runs`` times; return the shortest time, in ns.
        before: enqueues something before each run, whose time does not count."""
        graph, first, second = self.capture(enqueue), self.event(), self.event()
        times = []
        for _ in range(runs):
            if before is not None:
                before()
            self.record(first)
            self.replay(graph)
            self.record(second)
            self.synchronize()
            times.append(self.elapsed_ns(first, second))
        for event in (first, second):
            self.forget(event)
        self.destroy(graph)
        return min(times)


def compile_source(source: str, expressions: Sequence[str], architecture: str) -> ObjectCode:
    """Compile these instantiations to machine code, each of which waits for the kernel before it;
    needs the compiler, not a GPU."""
    headers = find_nvidia_header_directory("cudart")
    options = ProgramOptions(
        arch=architecture, std="c++17", include_path=[headers] if headers else None
    )
    return Program(waiting(source), "c++", options).compile(
        "cubin", name_expressions=tuple(expressions)
    )


def checked_compiler(answer: tuple[Any, ...]) -> tuple[int, int]:
    """Return the version of the run-time compiler. Raises `GpuError` if the call failed."""
    status, major, minor = answer
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise GpuError(f"nvrtcVersion: {status.name}")
    return major, minor
