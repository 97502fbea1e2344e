"""The cuDNN level's trace from what CUPTI records; the recording itself needs a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from golow.levels.direct.cudnn.run.activities import Activity, trace_events
from golow.lower.plan.plan import Step
from golow.programs.profiling.trace import read_trace
from golow.worker.tracing import write_events


def kernel(name: str, start: int, grid: int = 8) -> Activity:
    return Activity("kernel", name, 7, start, start + 10, 1, (grid, 1, 1, 128, 1, 1), 32, 0, True)


def plan_step(layer: str, phase: str = "forward") -> Step:
    return Step("convolution", (layer,), phase, (), ())  # type: ignore[arg-type]


def test_kernels_of_a_graph_get_the_steps_of_the_same_kernels_in_their_order() -> None:
    """Also where two branches of the graph ran in another order than their steps."""
    steps = [
        (kernel("conv", 0).key, plan_step("a")),
        (kernel("norm", 10).key, plan_step("a.norm")),
        (kernel("conv", 20).key, plan_step("b")),
        (kernel("conv", 30, grid=16).key, plan_step("c")),
    ]
    graph = [
        kernel("norm", 100),
        kernel("conv", 110, grid=16),
        kernel("conv", 120),
        kernel("conv", 130),
        kernel("unknown", 140),
        Activity("driver", "cuGraphLaunch", 1, 90, 95, 1),
        kernel("conv", 250),  # after the iteration
    ]
    events = list(trace_events(graph, [(80, 200)], steps))
    found = [(e["name"], e["args"].get("layer")) for e in events]
    assert found == [
        ("golow step 0", None),
        ("cuGraphLaunch", None),
        ("norm", "a.norm"),
        ("conv", "c"),
        ("conv", "a"),
        ("conv", "b"),
        ("unknown", None),
    ]
    details: dict[str, Any] = events[3]["args"]
    assert details["grid"] == (16, 1, 1)
    assert details["registers per thread"] == 32


def test_every_iteration_begins_with_all_steps() -> None:
    steps = [(kernel("conv", 0).key, plan_step("a"))]
    events = list(
        trace_events([kernel("conv", 10), kernel("conv", 40)], [(0, 30), (30, 60)], steps)
    )
    assert [e["args"]["layer"] for e in events if e["name"] == "conv"] == ["a", "a"]


def test_nanoseconds_since_1970_are_kept(tmp_path: Path) -> None:
    """In microseconds they are too large for a floating point number."""
    start = 1_795_476_000_123_456_789
    kernels = [kernel("a", start + 101), kernel("b", start + 112)]
    file = tmp_path / "trace.json"
    write_events(list(trace_events(kernels, [(start, start + 200)], [])), file)
    found = [event for event in read_trace(file).events if event.category == "kernel"]
    assert [(event.start, event.end) for event in found] == [(101, 111), (112, 122)]
