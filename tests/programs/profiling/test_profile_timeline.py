"""The trace of all levels that `golow profile --save` writes for Perfetto."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golow.programs.profiling.timeline import TIMELINE, timeline
from golow.programs.profiling.trace import Event, Trace
from golow.worker.tracing import write_events
from support.records import golow_perfetto as perfetto
from support.records.golow_perfetto import opened as processor_of
from support.records.saved_profile import STEPS, saved_profile
from support.records.traces import event, memory, step, written


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    """Two layers, the second with two kernels, and memory that is released again."""
    return written(
        tmp_path,
        [
            step(0, 1000, 1100),
            event("golow phase forward", "user_annotation", 1000, 1050),
            event("golow layer a", "user_annotation", 1000, 1020),
            event("aten::conv2d", "cpu_op", 1001, 1015),
            memory(1005, 512, device=1),
            event("cudaLaunchKernel", "cuda_runtime", 1002, 1003, correlation=1),
            event("golow layer b", "user_annotation", 1020, 1040),
            event("cudaLaunchKernel", "cuda_runtime", 1022, 1023, correlation=2),
            event("cudaLaunchKernel", "cuda_runtime", 1024, 1025, correlation=3),
            event("conv", "kernel", 1010, 1030, lane="7", correlation=1),
            event("gemm", "kernel", 1031, 1050, lane="7", correlation=2),
            event("relu", "kernel", 1051, 1060, lane="7", correlation=3),
            memory(1070, -512, device=1),
        ],
    )


def slices(events: list[dict[str, Any]], process: int, lane: str) -> list[str]:
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    return [
        e["name"]
        for e in events
        if e["ph"] == "X" and e["pid"] == process and names[e["pid"], e["tid"]] == lane
    ]


def test_a_level_is_a_process_with_layers_above_kernels(trace: Trace) -> None:
    events = timeline({"eager": trace, "cudagraph": trace})
    names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert names == ["eager", "cudagraph"]
    for process in (1, 2):
        assert slices(events, process, "layers on the device") == ["a", "b"]
        assert slices(events, process, "device") == ["conv", "gemm", "relu"]
        assert {"forward", "a", "b", "aten::conv2d"} <= set(slices(events, process, "host"))
    starts = [e["ts"] for e in events if e["name"] == "golow step 0"]
    assert starts == [0, 0]
    held = [e["args"]["bytes"] for e in events if e["ph"] == "C" and e["pid"] == 1]
    assert held == [512, 0]


KERNELS = st.lists(
    st.tuples(st.integers(0, 100), st.integers(1, 30), st.sampled_from("ab"), st.integers(1, 2)),
    max_size=12,
)


@given(kernels=KERNELS)
def test_slices_of_layers_never_overlap(kernels: list[tuple[int, int, str, int]]) -> None:
    """Also if kernels of two streams do: Perfetto would drop one of them."""
    events = [Event("golow step 0", "user_annotation", "host", 0, 200, {})]
    events += [
        Event("k", "kernel", f"stream {stream}", start, start + length, {"layer": layer})
        for start, length, layer, stream in sorted(kernels)
    ]
    trace = Trace((events[0],), tuple(events), ())
    found = [e for e in timeline({"x": trace}) if e.get("cat") == "layer"]
    for first, second in pairwise(found):
        assert first["ts"] + first["dur"] <= second["ts"] + 1e-9
        assert first["dur"] >= 0


@pytest.fixture(scope="module")
def saved(forked: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_profile(tmp_path_factory.getbasetemp())[1] / TIMELINE


def test_the_slices_of_a_real_profile_nest(saved: Path) -> None:
    events = json.loads(saved.read_text())["traceEvents"]
    lanes: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for item in events:
        if item["ph"] == "X":
            lanes[item["pid"], item["tid"]].append((item["ts"], item["ts"] + item["dur"]))
    assert lanes
    for spans in lanes.values():
        around: list[float] = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while around and around[-1] <= start + 1e-6:
                around.pop()
            assert not around or end <= around[-1] + 1e-3
            around.append(end)
    assert any(item["ph"] == "C" for item in events)


@pytest.mark.slow
@pytest.mark.skipif(bool(perfetto.missing()), reason=perfetto.missing())
def test_perfetto_answers_questions_about_it(saved: Path, trace: Trace, tmp_path: Path) -> None:
    with processor_of(saved) as opened:
        [row] = opened.query("select count(*) as n from slice where name = 'aten::conv2d'")
        assert row.n == 2 * STEPS  # layers
        [row] = opened.query("select count(*) as n from process where name = 'eager'")
        assert row.n == 1
    file = tmp_path / "both.json"
    write_events(timeline({"eager": trace, "cudagraph": trace}), file)
    query = """
        select process.name as level, slice.name as layer, sum(slice.dur) as ns
        from slice join thread_track on slice.track_id = thread_track.id
        join thread using (utid) join process using (upid)
        where slice.category = 'layer' group by 1, 2 order by 1, 2
    """
    with processor_of(file) as opened:
        rows = [(row.level, row.layer, row.ns) for row in opened.query(query)]
        [errors] = opened.query("select sum(value) as n from stats where severity = 'error'")
    assert rows == [
        (level, layer, ns)
        for level in ("cudagraph", "eager")
        for layer, ns in (("a", 20000), ("b", 29000))
    ]
    assert not errors.n
