"""The cuDNN level's trace from what CUPTI records, and its estimate of the occupancy. The recording
itself needs a GPU: test_profile.py."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golow.levels.vendor.cudnn.activities import Activity, trace_events
from golow.levels.vendor.cudnn.occupancy import Multiprocessor, occupancy, resident_blocks
from golow.lower.plan import Step

H200 = Multiprocessor(132, threads=2048, blocks=32, registers=65536, shared=233472, reserved=1024)


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks"),
    [
        (256, 32, 0, 8),  # by threads
        (256, 128, 0, 2),  # by registers
        (32, 16, 0, 32),  # by blocks
        (128, 32, 100_000, 2),  # by shared memory, with what the system takes
        (1024, 65, 0, 0),  # its registers do not fit
        (33, 0, 0, 32),  # two warps
    ],
)
def test_blocks_of_one_multiprocessor(
    threads: int, registers: int, shared: int, blocks: int
) -> None:
    """By hand from NVIDIA's occupancy calculator."""
    assert resident_blocks(H200, threads, registers, shared) == blocks


def test_few_blocks_do_not_fill_a_device() -> None:
    assert occupancy(H200, 132, 256, 32, 0) == pytest.approx(256 / 2048)
    assert occupancy(H200, 66, 256, 32, 0) == pytest.approx(128 / 2048)
    assert occupancy(H200, 10_000, 256, 128, 0) == pytest.approx(512 / 2048)


@given(
    blocks=st.integers(1, 10**6),
    threads=st.integers(1, 1024),
    registers=st.integers(0, 255),
    shared=st.integers(0, 232_448),
)
def test_an_occupancy_is_a_share(blocks: int, threads: int, registers: int, shared: int) -> None:
    found = occupancy(H200, blocks, threads, registers, shared)
    assert 0 <= found <= 1
    assert found <= occupancy(H200, blocks, threads, 0, 0) + 1e-12


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
    events = list(trace_events(graph, [(80, 200)], steps, H200))
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
    assert details["blocks per SM"] == pytest.approx(16 / 132)


def test_every_iteration_begins_with_all_steps() -> None:
    steps = [(kernel("conv", 0).key, plan_step("a"))]
    events = list(
        trace_events([kernel("conv", 10), kernel("conv", 40)], [(0, 30), (30, 60)], steps, H200)
    )
    assert [e["args"]["layer"] for e in events if e["name"] == "conv"] == ["a", "a"]
