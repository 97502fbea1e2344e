"""The estimate of how a kernel fills a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golow.programs.profiling.kernels import gpu_summary, kernel_times
from golow.programs.profiling.occupancy import (
    Multiprocessors,
    multiprocessors,
    occupancy,
    resident_blocks,
)
from golow.programs.profiling.trace import Trace
from support.records.traces import event, step, written

H200 = Multiprocessors(132, threads=2048, blocks=32, registers=65536, shared=233472, reserved=1024)


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


PROPERTIES = {
    "computeMajor": 9,
    "computeMinor": 0,
    "numSms": 132,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerMultiprocessor": 65536,
    "sharedMemPerMultiprocessor": 233472,
}  # as torch.profiler writes them for an H200


def test_a_traces_device() -> None:
    assert multiprocessors(PROPERTIES) == H200
    assert multiprocessors({}) is None
    assert multiprocessors({**PROPERTIES, "numSms": None}) is None


def test_a_kernel_with_much_shared_memory_is_not_0_percent(tmp_path: Path) -> None:
    """As torch.profiler says; without the device's properties there is nothing better."""
    launch = {
        "grid": [8, 8, 4], "block": [128, 1, 1], "registers per thread": 119,
        "shared memory": 98304, "blocks per SM": 1.94, "est. achieved occupancy %": 0,
    }  # fmt: skip
    events = [step(0, 0, 100), event("xmma", "kernel", 10, 60, lane="stream", **launch)]
    trace = written(tmp_path, events)
    [kernel] = kernel_times(trace)
    assert kernel.occupancy == 0
    known = Trace(trace.steps, trace.events, trace.allocations, PROPERTIES)
    [kernel] = kernel_times(known)
    assert kernel.occupancy == pytest.approx(256 / 132 * 128 / 2048)
    assert kernel.blocks_per_sm == pytest.approx(256 / 132)
    found = gpu_summary(known)
    assert found is not None
    assert found.sm_efficiency == pytest.approx(0.5)
