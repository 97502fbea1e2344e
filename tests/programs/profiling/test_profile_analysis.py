"""What a trace says of a step: the parts add up, and each figure belongs to who caused it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golow.programs.profiling.divided import write_divided
from golow.programs.profiling.kernels import (
    BLOCKS,
    OCCUPANCY,
    gpu_summary,
    kernel_times,
    uses_tensor_cores,
)
from golow.programs.profiling.operators import OperatorTime, operator_times
from golow.programs.profiling.summary import OTHER, ROLES, divide, execution_summary
from golow.programs.profiling.trace import Trace, nested, read_trace
from golow.records.comparison import LayerTime
from golow.records.errors import GolowError
from support.examples import examples
from support.records.traces import event, memory, step, written

# ---------------------------------------------------------------- the summary

INTERVALS = st.lists(
    st.tuples(st.integers(-20, 120), st.integers(-20, 120)).map(lambda pair: tuple(sorted(pair))),
    max_size=6,
)


@pytest.mark.slow
@given(by_role=st.dictionaries(st.sampled_from(ROLES[:-1]), INTERVALS))
@examples(300)
def test_every_moment_counts_once_for_the_first_role(
    by_role: dict[str, list[tuple[int, int]]],
) -> None:
    """Compared with counting the nanoseconds one by one."""
    found = divide((0, 100), by_role)
    assert sum(found.values()) == 100
    expected = dict.fromkeys(ROLES, 0)
    for moment in range(100):
        busy = (
            role
            for role in ROLES[:-1]
            if any(start <= moment < end for start, end in by_role.get(role, []))
        )
        expected[next(busy, OTHER)] += 1
    assert found == expected


def shares(trace: Trace) -> dict[str, float]:
    return {part.role: part.share for part in execution_summary(trace)}


def test_a_kernel_hides_what_the_host_does_meanwhile(tmp_path: Path) -> None:
    """And a copy what is left; the rest of the step is Python."""
    trace = written(
        tmp_path,
        [
            step(0, 0, 100),
            event("aten::conv2d", "cpu_op", 10, 60),
            event("cudaLaunchKernel", "cuda_runtime", 20, 30),
            event("conv", "kernel", 25, 55, lane="stream"),
            event("Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", 50, 70, lane="stream"),
            event("Memcpy DtoD", "gpu_memcpy", 70, 72, lane="stream"),
            event("cudaDeviceSynchronize", "cuda_runtime", 65, 80),
            event("golow layer", "user_annotation", 0, 100),
        ],
    )
    assert shares(trace) == pytest.approx(
        {
            "kernel": 0.30,
            "copy to the device": 0.15,
            "copy on the device": 0.02,
            "synchronisation": 0.08,
            "launch": 0.05,
            "operator on the host": 0.10,
            "other": 0.30,
        }
    )


def test_the_summary_is_the_mean_of_the_steps_and_of_nothing_around_them(tmp_path: Path) -> None:
    trace = written(
        tmp_path,
        [
            step(-1, 0, 50),  # a warm-up is no step
            event("aten::warm_up", "cpu_op", 0, 50),
            step(0, 100, 200),
            event("aten::relu", "cpu_op", 90, 150),  # of which 50 in the step
            step(1, 300, 400),
            event("aten::relu", "cpu_op", 300, 400),
        ],
    )
    parts = {part.role: part for part in execution_summary(trace)}
    assert parts["operator on the host"].share == pytest.approx(0.75)
    assert parts["operator on the host"].seconds == pytest.approx(75e-6)
    assert parts["other"].seconds == pytest.approx(25e-6)


# ---------------------------------------------------------------- operators


def by_name(trace: Trace) -> dict[str, OperatorTime]:
    return {found.name: found for found in operator_times(trace)}


def test_what_an_operator_called_is_not_its_own(tmp_path: Path) -> None:
    trace = written(
        tmp_path,
        [
            step(0, 0, 100),
            event("aten::linear", "cpu_op", 10, 50),
            event("aten::addmm", "cpu_op", 20, 40),
            memory(30, 400),
            memory(45, -100),
            event("aten::addmm", "cpu_op", 60, 70),
            event("aten::elsewhere", "cpu_op", 15, 95, lane="another thread"),
        ],
    )
    found = by_name(trace)
    linear, addmm = found["aten::linear"], found["aten::addmm"]
    assert (linear.calls, addmm.calls) == (1, 2)
    assert (linear.self_host, linear.total_host) == pytest.approx((20e-6, 40e-6))
    assert (addmm.self_host, addmm.total_host) == pytest.approx((30e-6, 30e-6))
    assert (linear.self_host_memory, linear.total_host_memory) == (-100, 300)
    assert (addmm.self_host_memory, addmm.total_host_memory) == (400, 400)
    assert found["aten::elsewhere"].self_host == pytest.approx(80e-6)


def test_a_kernel_belongs_to_who_launched_it(tmp_path: Path) -> None:
    """However late it runs; one that was launched before the step to nobody in it."""
    trace = written(
        tmp_path,
        [
            event("cudaLaunchKernel", "cuda_runtime", -10, -5, correlation=1),
            step(0, 0, 100),
            event("before", "kernel", 1, 9, lane="stream", correlation=1),
            event("aten::linear", "cpu_op", 10, 50),
            event("aten::addmm", "cpu_op", 20, 40),
            event("cudaLaunchKernel", "cuda_runtime", 25, 30, correlation=2),
            event("gemm", "kernel", 60, 90, lane="stream", correlation=2),
            event("cudaLaunchKernel", "cuda_runtime", 42, 44, correlation=3),
            event("bias", "kernel", 90, 95, lane="stream", correlation=3),
        ],
    )
    found = by_name(trace)
    linear, addmm = found["aten::linear"], found["aten::addmm"]
    assert (addmm.self_device, addmm.total_device) == pytest.approx((30e-6, 30e-6))
    assert (linear.self_device, linear.total_device) == pytest.approx((5e-6, 35e-6))


def test_operators_are_told_apart_by_shape_where_asked(tmp_path: Path) -> None:
    events = [step(0, 0, 100)]
    for start, shape in ((10, [8, 3]), (20, [8, 4]), (30, [8, 3])):
        details = {"Input Dims": [shape]}
        events.append(event("aten::relu", "cpu_op", start, start + 5, **details))
    trace = written(tmp_path, events)
    assert [(found.shapes, found.calls) for found in operator_times(trace)] == [("", 3)]
    shaped = {found.shapes: found.calls for found in operator_times(trace, by_shape=True)}
    assert shaped == {"[[8, 3]]": 2, "[[8, 4]]": 1}


@st.composite
def nestings(draw: st.DrawFn) -> list[dict[str, object]]:
    """Operators that call one another, on two threads, in whole microseconds."""
    events: list[dict[str, object]] = [step(0, 0, 1000)]

    def fill(start: int, end: int, lane: str, depth: int) -> None:
        while end - start > 2 and draw(st.booleans()):
            first = draw(st.integers(start, end - 2))
            last = draw(st.integers(first + 1, end - 1))
            name = draw(st.sampled_from(["a", "b", "c"]))
            events.append(event(name, "cpu_op", first, last, lane=lane))
            if depth < 4:
                fill(first, last, lane, depth + 1)
            start = last

    for lane in ("one", "two"):
        fill(0, 900, lane, 0)
    return events


@given(events=nestings())
@examples(100)
def test_own_times_add_up_to_the_outermost_operators(
    events: list[dict[str, object]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    trace = written(tmp_path_factory.mktemp("nested"), events)  # type: ignore[arg-type]
    operators = list(trace.in_steps("cpu_op"))
    around = nested(operators)
    outermost = [e for position, e in enumerate(operators) if position not in around]
    own = sum(found.self_host for found in operator_times(trace))
    assert own == pytest.approx(sum(e.nanoseconds for e in outermost) / 1e9)
    assert sum(found.calls for found in operator_times(trace)) == len(operators)
    assert all(found.total_host >= found.self_host - 1e-12 for found in operator_times(trace))


# ---------------------------------------------------------------- kernels


def kernel(name: str, start: float, end: float, correlation: int, **more: object) -> dict[str, Any]:
    details = {"correlation": correlation, "grid": [1024, 2, 1], "block": [256, 1, 1]} | more
    return event(name, "kernel", start, end, lane="stream", **details)


def test_kernels_have_their_launches_and_their_operator(tmp_path: Path) -> None:
    events = [step(0, 0, 100), event("aten::relu", "cpu_op", 0, 50)]
    for number, (start, end) in enumerate([(10, 20), (20, 50)]):
        events.append(
            event("cudaLaunchKernel", "cuda_runtime", 2 + number, 3 + number, correlation=number)
        )
        events.append(kernel("relu", start, end, number, **{"registers per thread": 32}))
    events.append(kernel("relu", 60, 65, 9, grid=[512, 2, 1]))
    first, second = kernel_times(written(tmp_path, events))
    assert (first.grid, first.block, first.registers) == ((1024, 2, 1), (256, 1, 1), 32)
    assert (first.calls, first.operator) == (2, "aten::relu")
    assert (first.seconds, first.lowest, first.highest) == pytest.approx((40e-6, 10e-6, 30e-6))
    assert (second.grid, second.calls, second.operator) == ((512, 2, 1), 1, "")


def test_a_gpus_figures_are_weighted_by_time(tmp_path: Path) -> None:
    full, half = {OCCUPANCY: 100, BLOCKS: 4.0}, {OCCUPANCY: 20, BLOCKS: 0.5}
    events = [
        step(0, 0, 100),
        kernel("sm90_xmma_gemm_bf16", 10, 40, 1, **full),
        kernel("elementwise", 30, 40, 2, **half),  # at the same time, on another stream
        kernel("elementwise", 150, 160, 3, **half),  # after the step
    ]
    found = gpu_summary(written(tmp_path, events))
    assert found is not None
    assert found.utilization == pytest.approx(0.30)
    assert found.occupancy == pytest.approx(0.75 * 1.0 + 0.25 * 0.2)
    assert found.sm_efficiency == pytest.approx((0.75 * 1.0 + 0.25 * 0.5) * 0.30)
    assert found.tensor_cores == pytest.approx(0.75)
    assert gpu_summary(written(tmp_path, [step(0, 0, 1)])) is None


@pytest.mark.parametrize(
    ("name", "uses"),
    [
        ("ampere_h16816gemm_128x64_ldg8_stages_64x3_tn", True),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", True),
        ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm>", True),
        ("void at::native::vectorized_elementwise_kernel<4, relu>", False),
        ("ampere_sgemm_128x64_tn", False),
        ("nvjet_sm90_tst_64x64_64x13_1x2_h_bz_splitK_NTT", True),
        ("sm80_xmma_dgrad_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc", True),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nt_n_tilesize32x32x8_stage3", False),
    ],
)
def test_tensor_cores_are_known_by_the_kernels_name(name: str, uses: bool) -> None:
    assert uses_tensor_cores(name) is uses


# ---------------------------------------------------------------- traces


def test_steps_that_a_level_timed_itself_are_a_trace(tmp_path: Path) -> None:
    layers = [
        LayerTime(modules=("conv",), phase="forward", operation="convolution", ns=(3000, 5000)),
        LayerTime(modules=("fc",), phase="forward", operation="linear", ns=(1000, 1000)),
    ]
    file = tmp_path / "trace.json"
    write_divided(layers, file, on_device=False)
    trace = read_trace(file)
    assert [step.nanoseconds for step in trace.steps] == [4000, 6000]
    assert shares(trace) == {"operator on the host": 1.0}
    found = by_name(trace)
    assert found["convolution"].self_host == pytest.approx(4e-6)
    write_divided(layers, file, on_device=True)
    assert shares(read_trace(file)) == {"kernel": 1.0}


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"traceEvents": 1}', '{"traceEvents": [{"ph": "X"}]}', '{"traceEvents": []}'],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "trace.json"
    file.write_text(text)
    with pytest.raises(GolowError, match=r"trace\.json"):
        read_trace(file)
