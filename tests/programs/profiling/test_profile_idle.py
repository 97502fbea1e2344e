"""Why a GPU was idle, and which layer the kernels of a CUDA graph belong to."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golow.programs.profiling.idle import CAUSES, idle_times
from golow.programs.profiling.kernels import gpu_summary, kernel_times
from golow.programs.profiling.same_kernels import with_layers_of
from golow.programs.profiling.trace import Event, Trace
from support.records.traces import event, step, written


def launched(name: str, number: int, at: float, start: float, end: float) -> list[dict]:
    """A kernel, and the call that launched it."""
    return [
        event("cudaLaunchKernel", "cuda_runtime", at, at + 1, correlation=number),
        event(name, "kernel", start, end, lane="stream", correlation=number, grid=[1, 1, 1]),
    ]


def test_idle_time_has_a_cause(tmp_path: Path) -> None:
    trace = written(
        tmp_path,
        [
            step(0, 0, 100),
            *launched("a", 1, 5, 10, 20),  # the host began late: 10
            *launched("b", 2, 8, 22, 30),  # 2 between kernels
            *launched("c", 3, 9, 50, 60),  # 20 for no known cause
            *launched("d", 4, 65, 70, 80),  # launched after c: 10 for the host
        ],  # and 20 until the step ends
    )
    found = {part.role: part.seconds for part in idle_times(trace)}
    assert found == pytest.approx(
        {"waiting for the host": 40e-6, "between kernels": 2e-6, "other": 20e-6}
    )


def test_without_a_device_nothing_is_idle(tmp_path: Path) -> None:
    assert idle_times(written(tmp_path, [step(0, 0, 10)])) == ()


SPANS = st.lists(
    st.tuples(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=8
)


@given(spans=SPANS)
def test_idle_and_busy_time_are_the_step(spans: list[tuple[int, int, int]]) -> None:
    """Kernels may overlap, begin before the step, and end after it."""
    events = [Event("golow step 0", "user_annotation", "host", 20, 80, {})]
    for number, (launch, one, other) in enumerate(spans):
        details = {"correlation": number}
        start, end = sorted((one, other))
        events.append(Event("launch", "cuda_runtime", "host", launch, launch, details))
        events.append(Event("k", "kernel", "stream", start, end, details))
    events.sort(key=lambda e: (e.start, -e.end))
    first = next(e for e in events if e.name.startswith("golow"))
    trace = Trace((first,), tuple(events), ())
    moments = {m for e in events if e.category == "kernel" for m in range(e.start, e.end)}
    busy = len(moments & set(range(20, 80)))
    idle = idle_times(trace)
    assert [part.role for part in idle] == list(CAUSES)
    assert round(sum(part.seconds for part in idle) * 1e9) + busy == 60


def test_a_graphs_kernels_have_the_layers_of_eagers(tmp_path: Path) -> None:
    """Not those that the graph runs more often, or that eager does not run."""
    (tmp_path / "eager").mkdir()
    (tmp_path / "graph").mkdir()
    layer = [event(f"golow layer {name}", "user_annotation", at, at + 10) for name, at in LAYERS]
    eager = written(
        tmp_path / "eager",
        [
            step(0, 0, 100),
            event("golow phase forward", "user_annotation", 0, 100),
            *layer,
            *launched("conv", 1, 2, 50, 60),
            *launched("relu", 2, 4, 60, 65),
            *launched("conv", 3, 12, 65, 80),
        ],
    )
    replay = {"lane": "stream", "correlation": 9, "grid": [1, 1, 1]}
    graph = written(
        tmp_path / "graph",
        [
            step(0, 0, 100),
            event("cudaGraphLaunch", "cuda_runtime", 1, 2, correlation=9),
            event("conv", "kernel", 10, 20, **replay),
            event("relu", "kernel", 20, 25, **replay),
            event("conv", "kernel", 25, 30, **replay),
            event("relu", "kernel", 30, 35, **replay),
            event("copy", "kernel", 35, 40, **replay),
        ],
    )
    placed = with_layers_of(graph, eager)
    kernels = [e for e in placed.events if e.category == "kernel"]
    assert [e.details.get("layer") for e in kernels] == ["a", None, "b", None, None]
    assert {k.name: k.layer for k in kernel_times(placed)} == {"conv": "a", "relu": "", "copy": ""}
    assert gpu_summary(placed) == gpu_summary(graph)


LAYERS = (("a", 0), ("b", 10))
