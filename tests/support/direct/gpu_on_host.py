"""`golow.levels.direct.cudnn.run` without a GPU: memory, streams and CUDA graphs stand on the host.

Everything of `run/` is the real thing. What it needs of a device is here: pieces of the host's
memory, kernels as `cuda_host.py` runs them, products and convolutions as NumPy and PyTorch compute
them, and graphs as lists of what was enqueued, whose addresses a launch exchanges.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.nn import functional, grad

from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.gemm import Problem
from golow.levels.direct.cudnn.problems.layouts import NUMPY_TYPES
from golow.levels.direct.cudnn.problems.products import Convolution
from golow.levels.direct.cudnn.shared_kernels import Kernel
from support.direct.cuda_host import run
from support.direct.cudnn_plans import AskedEngines
from support.direct.libraries_on_cpu import multiply

REPLACED = (
    "golow.levels.nvidia.memory",
    "golow.levels.nvidia.stream",
    "golow.levels.direct.cudnn.bindings.device",
    "golow.levels.direct.cudnn.bindings.pointed_graph",
    "golow.levels.direct.cudnn.engines.engines",
)
REAL = "golow.levels.direct.cudnn.run."
Call = tuple[Callable[[Sequence[int]], None], tuple[int, ...]]  # what is done at which addresses


@contextmanager
def gpu_on_host(kind: type[HostGpu] | None = None) -> Iterator[HostGpu]:
    """Within the block modules of ``run/`` are imported anew, over this device. kind: of it."""
    before = _taken_out()
    names: dict[str, Any] = {
        "Region": Region, "Pinned": Region, "GpuError": RuntimeError, "checked": None,
        "Stream": HostGpu, "Stopwatch": None, "Gpu": HostGpu, "Graph": Any,
        "PointedGraph": PointedGraph, "Turns": Turns, "Engines": HostEngines,
    }  # fmt: skip
    for name in REPLACED:
        sys.modules[name] = module = ModuleType(name)
        vars(module).update(names)
    try:
        yield (kind or HostGpu)()
    finally:
        _taken_out()
        for name, module in before.items():
            package, _, own = name.rpartition(".")
            sys.modules[name] = module
            setattr(sys.modules[package], own, module)


def _taken_out() -> dict[str, ModuleType]:
    """The modules that stand on the device, which are imported anew from now on. Packages forget
    them, too: `from package import module` asks there first."""
    names = [name for name in sys.modules if name in REPLACED or name.startswith(REAL)]
    for name in names:
        package, _, own = name.rpartition(".")
        if package in sys.modules:
            vars(sys.modules[package]).pop(own, None)
    return {name: sys.modules.pop(name) for name in names}


class Region:
    """Memory that is zero at first; size in bytes. peak: of all that there was at once."""

    def __init__(self, size: int) -> None:
        self.size = max(size, 256)
        self._memory = np.zeros(self.size + 512, np.uint8)
        start = self._memory.ctypes.data
        self.address = start + -start % 256


class HostGpu:
    """Does what is enqueued at once, or records it. Streams are numbers: there is no order to
    keep. words: what was written as single words, with the stream."""

    stream = 1
    cache_bytes = 1 << 20

    def __init__(self) -> None:
        self.recording: list[Call] | None = None
        self.words: list[tuple[int, int, int | None]] = []
        self.notes: list[str] = []

    def enqueue(self, do: Callable[[Sequence[int]], None], *addresses: int) -> None:
        """Do it at these addresses, or record it."""
        if self.recording is None:
            do(addresses)
        else:
            self.recording.append((do, addresses))

    def launch(self, kernel: Kernel, pointers: Sequence[int], side: bool = False) -> None:
        self.enqueue(partial(_launched, kernel), *pointers)

    def upload(self, address: int, array: np.ndarray) -> None:
        assert self.recording is None, "an upload in a graph"
        data = np.ascontiguousarray(array)
        ctypes.memmove(address, data.ctypes.data, data.nbytes)

    def download(self, address: int, shape: Sequence[int], dtype: Any) -> np.ndarray:
        array = np.empty(tuple(shape), dtype)
        ctypes.memmove(array.ctypes.data, address, array.nbytes)
        return array

    def fill(self, address: int, size: int, byte: int = 0) -> None:
        self.enqueue(lambda at: ctypes.memset(at[0], byte, size) and None, address)

    def copy(self, target: int, source: int, size: int) -> None:
        self.enqueue(lambda at: ctypes.memmove(*at, size) and None, target, source)

    def copy_columns(
        self, target: int, pitch: int, source: int, source_pitch: int, width: int, rows: int
    ) -> None:
        for row in range(rows):
            ctypes.memmove(target + row * pitch, source + row * source_pitch, width)

    def write_word(self, address: int, value: int, stream: int | None = None) -> None:
        self.words.append((address, value, stream))
        self.enqueue(
            lambda at: ctypes.memmove(at[0], np.uint32(value).tobytes(), 4) and None, address
        )

    def nothing(self, *given: object) -> None:
        """There is nothing to wait for."""

    compile = synchronize = make_current = fork = join = beside = nothing


def _launched(kernel: Kernel, addresses: Sequence[int]) -> None:
    at = [SimpleNamespace(ctypes=SimpleNamespace(data=address)) for address in addresses]
    run(kernel, at)  # type: ignore[arg-type]


class Turns:
    """Counts who took a turn."""

    def __init__(self) -> None:
        self.taken_by: list[int] = []

    @contextmanager
    def taken(self, stream: int) -> Iterator[None]:
        self.taken_by.append(stream)
        yield


class PointedGraph:
    """What a function enqueues, with the addresses within these places exchanged."""

    def __init__(
        self,
        gpu: HostGpu,
        enqueue: Callable[[], None],
        places: Sequence[Region],
        turns: Turns | None = None,
    ) -> None:
        self._turns, gpu.recording = turns or Turns(), []
        enqueue()
        self._calls, gpu.recording = gpu.recording, None
        self._spans = [(place.address, place.address + place.size) for place in places]
        self._kept = places  # so that nothing else gets this memory
        at = {address for _, addresses in self._calls for address in addresses}
        self.pointed = {
            k for k, (start, end) in enumerate(self._spans) if any(start <= a < end for a in at)
        }

    def launch(self, addresses: Sequence[int], stream: int) -> None:
        with self._turns.taken(stream):
            for do, given in self._calls:
                do([self._moved(address, addresses) for address in given])

    def close(self) -> None:
        """Forget what was recorded."""
        self._calls = []

    def _moved(self, address: int, places: Sequence[int]) -> int:
        for (start, end), place in zip(self._spans, places, strict=True):
            if start <= address < end:
                return place + address - start
        return address


class HostEngine:
    """An operation as the host computes it."""

    kind = name = "host"
    workspace = 256

    def __init__(self, operation: Any, gpu: HostGpu) -> None:
        self._operation, self._gpu = operation, gpu

    def run(self, addresses: Sequence[int], workspace: int, side: bool = False) -> None:
        compute = _product if isinstance(self._operation, Problem) else _convolution
        self._gpu.enqueue(partial(compute, self._operation), *addresses)


class HostEngines(AskedEngines):
    """Engines on the host."""

    def __init__(self, gpu: HostGpu) -> None:
        super().__init__()
        self.gpu: HostGpu = gpu

    def choose(self, operation: Any) -> HostEngine | None:  # type: ignore[override]
        known = isinstance(operation, Problem | Convolution)
        return HostEngine(operation, self.gpu) if known else None


def _product(problem: Problem, addresses: Sequence[int]) -> None:
    a, b, d = (problem.matrices[name].extent(problem.batch) for name in "abd")
    sizes = [(a, problem.dtype), (b, problem.dtype)]
    sizes += [(problem.n, "float32"), (problem.m, "float32")] if problem.scaled else []
    sizes += [(problem.n, problem.result)] if problem.bias else []
    sizes += [(d, problem.result)] if problem.residual else []
    sizes.append((d, problem.result))
    multiply(problem, [_at(*one) for one in zip(addresses, sizes, strict=True)])


def _at(address: int, form: tuple[int, str]) -> np.ndarray:
    count, dtype = form
    raw = (ctypes.c_uint8 * (count * ITEM_BYTES[dtype])).from_address(address)
    return np.frombuffer(raw, np.uint8).view(NUMPY_TYPES[dtype])


def _convolution(problem: Convolution, addresses: Sequence[int]) -> None:
    """Of images, with equal padding on both sides."""
    half = len(problem.padding) // 2
    assert problem.padding[:half] == problem.padding[half:], "the host pads both sides alike"
    shapes = {"image": problem.image, "output": problem.output, "weight": problem.weight}
    orders = {
        "forward": ("image", "weight"), "backward_data": ("output", "weight"),
        "backward_weight": ("image", "output"),
    }  # fmt: skip
    names = orders[problem.direction]
    given = [
        _tensor(at, shapes[name], problem.dtype) for at, name in zip(addresses, names, strict=False)
    ]
    how = (problem.stride, problem.padding[:half], problem.dilation, problem.groups)
    left = list(addresses[2:-1])
    if problem.direction == "forward":
        bias = _tensor(left.pop(0), (problem.output[1],), problem.dtype) if problem.bias else None
        made = functional.conv2d(given[0], given[1], bias, *how)
        if problem.residual:
            made = made + _tensor(left.pop(0), problem.output, problem.result)
        made, name = made.clamp(*problem.clip), "output"
        assert problem.activation is None
    elif problem.direction == "backward_data":
        made, name = grad.conv2d_input(problem.image, given[1], given[0], *how), "image"
    else:
        made, name = grad.conv2d_weight(given[0], problem.weight, given[1], *how), "weight"
    there = _memory(addresses[-1], shapes[name], problem.result)
    there[...] = _nhwc(made).numpy().astype(there.dtype)


def _tensor(address: int, shape: Sequence[int], dtype: str) -> torch.Tensor:
    found = torch.from_numpy(_memory(address, shape, dtype).astype(np.float32))
    return found.movedim(-1, 1) if len(shape) > 1 else found


def _memory(address: int, shape: Sequence[int], dtype: str) -> np.ndarray:
    ordered = (shape[0], *shape[2:], shape[1]) if len(shape) > 1 else tuple(shape)
    return _at(address, (int(np.prod(shape)), dtype)).reshape(ordered)


def _nhwc(made: torch.Tensor) -> torch.Tensor:
    return made.movedim(1, -1)
