"""The order of a captured CUDA graph's nodes, on a GPU."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

from golow.levels.direct.cudnn.level import probe

if not probe().available:
    pytest.skip(probe().missing, allow_module_level=True)

from cuda.bindings import driver

from golow.levels.direct.cudnn.bindings.device import Gpu, compile_source
from golow.levels.direct.cudnn.shared_kernels.delay import delay
from golow.levels.nvidia.memory import checked

pytestmark = pytest.mark.gpu
KEPT: list[Any] = []  # code outlives the graphs that launch it


def launch_early(gpu: Gpu) -> None:
    """Enqueue a kernel as the libraries enqueue some of theirs: it may begin before the one before
    it has ended."""
    kernel = delay(1000)
    code = compile_source(kernel.source, [kernel.expression], gpu.architecture)
    KEPT.append(code)
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    config = driver.CUlaunchConfig()
    for axis in "XYZ":
        setattr(config, f"gridDim{axis}", 1)
        setattr(config, f"blockDim{axis}", 1)
    config.hStream, config.attrs, config.numAttrs = gpu.stream, [attribute], 1
    function = code.get_kernel(kernel.expression).handle
    arguments = ((1000,), (ctypes.c_longlong,))
    checked(driver.cuLaunchKernelEx(config, function, arguments, 0), "cuLaunchKernelEx")


def early_edges(graph: Any) -> int:
    *_, count = checked(driver.cuGraphGetEdges(graph, 0), "cuGraphGetEdges")
    _, _, edges, _ = checked(driver.cuGraphGetEdges(graph, count), "cuGraphGetEdges")
    return sum(int(edge.type) != 0 for edge in edges[:count])


@pytest.mark.parametrize(("enqueue", "left"), [("library", 0), ("own", 2)])
def test_only_own_kernels_begin_before_the_end_of_those_before_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, enqueue: str, left: int
) -> None:
    """Other edges of the graph that is instantiated are plain, whatever was captured."""
    gpu, seen = Gpu(tmp_path), []
    if not gpu._early:
        pytest.skip("no kernel of this GPU begins early")
    own = delay(1000)
    if enqueue == "own":
        gpu.compile([own])
    captured, instantiate = driver.cuStreamEndCapture, driver.cuGraphInstantiate

    def end(stream: int) -> Any:
        status, graph = captured(stream)
        seen.append(early_edges(graph))
        return status, graph

    def make(graph: Any, flags: int) -> Any:
        seen.append(early_edges(graph))
        return instantiate(graph, flags)

    monkeypatch.setattr(driver, "cuStreamEndCapture", end)
    monkeypatch.setattr(driver, "cuGraphInstantiate", make)

    def three() -> None:
        for _ in range(3):
            launch_early(gpu) if enqueue == "library" else gpu.launch(own, [])

    gpu.replay(gpu.capture(three))
    gpu.synchronize()
    before, after = seen
    assert before == 2, "the kernels were captured in a row, each to begin early"
    assert after == left
