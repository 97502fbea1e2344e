"""Memory over a step: every byte has a category and a lifetime, and they add up."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from rich.console import Console

import golow
from golow.api import ProfileResult
from golow.programs.profiling.allocations import memory_of_trace
from golow.programs.profiling.arena import memory_of_plan
from golow.programs.profiling.divided import write_divided
from golow.programs.profiling.memory import CATEGORIES, Block, MemoryProfile, timeline
from golow.programs.profiling.trace import read_trace
from golow.records.comparison import LayerTime
from golow.records.errors import Unsupported
from golow.report.profiling.table import render
from golow.worker.protocol import ArenaReport, PlannedBuffer, PlannedStep
from golow.workload.source import build_module
from support.examples import examples
from support.records.saved_profile import saved_profile
from support.records.traces import event, memory, step, written

MARK = "user_annotation"


def held(number: int, *blocks: tuple[str, str, int, int], **totals: int) -> dict[str, Any]:
    """A snapshot after an iteration: category, name, address and bytes of each block."""
    names = ("category", "name", "address", "bytes")
    return {"step": number, "blocks": [dict(zip(names, b, strict=True)) for b in blocks]} | totals


def host(folder: Path, events: list[dict[str, Any]], *snapshots: dict[str, Any]) -> MemoryProfile:
    return memory_of_trace(written(folder, events, snapshots), on_device=False)


def block(profile: MemoryProfile, size: int) -> Block:
    [found] = [item for item in profile.blocks if item.bytes == size]
    return found


# ---------------------------------------------------------------- categories


def test_a_training_step_in_all_its_categories(tmp_path: Path) -> None:
    weight, momentum = ("parameters", "a.w", 1, 100), ("optimizer state", "a.w", 2, 101)
    found = host(
        tmp_path,
        [
            step(0, 0, 100),
            event("golow phase forward", MARK, 5, 40),
            event("golow layer a", MARK, 6, 30),
            event("aten::linear", "cpu_op", 10, 20),
            event("aten::addmm", "cpu_op", 11, 19),
            memory(1, -102, address=3),  # the last step's gradient
            memory(12, 7, address=4),
            memory(18, -7, address=4),  # before the outer operator ends
            memory(13, 50, address=5),  # until the backward pass
            memory(14, 60, address=6),  # until the forward pass goes on
            memory(35, -60, address=6),
            event("golow phase backward", MARK, 40, 80),
            event("aten::mm", "cpu_op", 45, 50),
            memory(46, 103, address=3),
            memory(47, 70, address=7),
            memory(60, -50, address=5),
            memory(61, -70, address=7),
        ],
        held(-1, weight, momentum, ("gradients", "a.w", 3, 102)),
        held(0, weight, momentum, ("gradients", "a.w", 3, 103)),
    )
    expected = {
        100: ("parameters", 0, 100),
        101: ("optimizer state", 0, 100),
        102: ("gradients", 0, 1),
        7: ("workspace", 12, 18),
        50: ("activations", 13, 60),
        60: ("temporary", 14, 35),
        103: ("gradients", 46, 100),
        70: ("temporary", 47, 61),
    }
    assert {
        b.bytes: (b.category, round(b.first * 1e6), round(b.last * 1e6)) for b in found.blocks
    } == expected
    activation = block(found, 50)
    assert (activation.operator, activation.layer, activation.phase) == (
        "aten::linear", "a", "forward",
    )  # fmt: skip
    assert (block(found, 103).name, block(found, 103).operator) == ("a.w", "aten::mm")
    assert found.peak.bytes == 100 + 101 + 50 + 103 + 70
    assert found.peak.moment == pytest.approx(47e-6)
    assert found.peak.categories == {
        "parameters": 100, "optimizer state": 101, "activations": 50, "gradients": 103,
        "temporary": 70,
    }  # fmt: skip


def test_in_inference_what_outlives_its_operator_is_an_activation(tmp_path: Path) -> None:
    found = host(
        tmp_path,
        [
            step(0, 0, 100),
            event("golow phase forward", MARK, 0, 90),
            event("aten::relu", "cpu_op", 10, 20),
            memory(11, 5, address=1),
            memory(12, 6, address=2),
            memory(15, -6, address=2),
            memory(50, -5, address=1),
        ],
    )
    assert {b.bytes: b.category for b in found.blocks} == {5: "activations", 6: "workspace"}


def test_what_runs_operators_is_no_operator(tmp_path: Path) -> None:
    """What a compiled graph frees before it ends is no workspace; nor does it outlive anything."""
    found = host(
        tmp_path,
        [
            step(0, 0, 100),
            event("golow phase forward", MARK, 0, 90),
            event("CompiledFunction", "cpu_op", 5, 80),
            memory(11, 5, address=1),
            memory(50, -5, address=1),
        ],
    )
    assert (block(found, 5).category, block(found, 5).operator) == (
        "temporary", "CompiledFunction",
    )  # fmt: skip


# ---------------------------------------------------------------- planted errors


def test_a_release_without_an_allocation_is_of_memory_held_before(tmp_path: Path) -> None:
    found = host(tmp_path, [step(0, 0, 100), memory(40, -30, address=1)])
    [only] = found.blocks
    assert (only.category, only.first, only.bytes) == ("other", 0, 30)
    assert only.last == pytest.approx(40e-6)
    assert (found.peak.moment, found.peak.bytes) == (0, 30)


def test_an_allocation_that_nobody_released_ends_where_its_address_is_used_again(
    tmp_path: Path,
) -> None:
    found = host(tmp_path, [step(0, 0, 100), memory(10, 3, address=1), memory(50, 4, address=1)])
    assert block(found, 3).last == block(found, 4).first == pytest.approx(50e-6)
    assert found.peak.bytes == 4


def test_what_an_earlier_step_left_is_held_before(tmp_path: Path) -> None:
    """But not what it released; and an address that was used again is what it was last."""
    found = host(
        tmp_path,
        [
            step(-1, 0, 50),
            memory(1, 8, address=1),
            memory(2, 9, address=2),
            memory(3, -9, address=2),
            memory(4, 10, address=2),
            step(0, 100, 200),
            memory(110, 1, address=9),
        ],
        held(-1, ("gradients", "w", 2, 10)),
    )
    assert {b.bytes: b.category for b in found.blocks} == {
        8: "other", 10: "gradients", 1: "temporary",
    }  # fmt: skip


def test_a_gpu_has_only_its_own_memory_and_its_allocators_totals(tmp_path: Path) -> None:
    """Blocks have the allocator's rounded size; what nobody names is other."""
    trace = written(
        tmp_path,
        [
            step(0, 0, 100),
            memory(5, 77, address=5),  # on the host
            memory(10, -512, device=1, address=1, allocated=1500, reserved=4096),
            memory(20, 1024, device=1, address=3, allocated=2524, reserved=8192),
        ],
        [
            held(-1, ("gradients", "w", 1, 400), ("parameters", "w", 2, 512), allocated=2012),
            held(0, allocated=2524, reserved=8192),
        ],
    )
    found = memory_of_trace(trace, on_device=True)
    assert sorted((b.bytes, b.category) for b in found.blocks) == [
        (512, "gradients"), (512, "parameters"), (988, "other"), (1024, "temporary"),
    ]  # fmt: skip
    assert (found.peak.bytes, found.reserved) == (2524, 8192)


def test_without_allocations_and_addresses_there_is_no_memory(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="does not record allocations or plan"):
        host(tmp_path, [step(0, 0, 100), memory(10, 3)])  # no address


# ---------------------------------------------------------------- any allocations


@st.composite
def sequences(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Signed bytes at an address; a release is of the whole block, or of one held before."""
    found: list[tuple[int, int]] = []
    sizes: dict[int, int] = {}
    for _ in range(draw(st.integers(1, 30))):
        address = draw(st.integers(1, 6))
        if address in sizes:
            found.append((address, -sizes.pop(address)))
        elif any(used == address for used, _ in found) or draw(st.booleans()):
            sizes[address] = draw(st.integers(1, 1000))
            found.append((address, sizes[address]))
        else:
            found.append((address, -draw(st.integers(1, 1000))))
    return found


@given(sequence=sequences(), operators=st.lists(st.integers(1, 60), max_size=6))
@examples(200, suppress_health_check=[HealthCheck.too_slow])
def test_categories_add_up_to_what_is_allocated(
    sequence: list[tuple[int, int]],
    operators: list[int],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    events = [step(0, 0, 100), event("golow phase forward", MARK, 0, 30)]
    events += [event("golow phase backward", MARK, 30, 90)]
    events += [event("aten::op", "cpu_op", start, start + 9) for start in sorted(set(operators))]
    events += [memory(n + 1, size, address=a) for n, (a, size) in enumerate(sequence)]
    found = host(tmp_path_factory.mktemp("sequence"), events)

    first = dict(reversed(sequence))
    total = -sum(size for size in first.values() if size < 0)  # held before the step
    expected = {0: total}
    for number, (_, size) in enumerate(sequence):
        total += size
        expected[number + 1] = total
    points = {round(moment * 1e6): by for moment, by in timeline(found.blocks, found.length)}
    assert {moment: sum(by.values()) for moment, by in points.items()} == expected
    assert all(size >= 0 for by in points.values() for size in by.values())
    assert all(set(by) == set(CATEGORIES) for by in points.values())
    assert found.peak.bytes == max(expected.values())
    assert sum(found.peak.categories.values()) == found.peak.bytes


# ---------------------------------------------------------------- plans

STEPS = tuple(
    PlannedStep(operation=operation, layer="a", phase=phase)
    for operation, phase in (
        ("linear", "forward"), ("relu", "forward"), ("linear_backward", "backward"),
        ("sgd", "update"),
    )
)  # fmt: skip


def planned(name: str, first: int, last: int, **more: Any) -> PlannedBuffer:
    return PlannedBuffer(
        name=name, place=more.pop("place", "arena"), offset=0, bytes=len(name), first=first,
        last=last, **more,
    )  # fmt: skip


def test_a_plans_buffers_have_the_same_categories(tmp_path: Path) -> None:
    buffers = (
        planned("w", 0, 4, place="state", category="parameters"),
        planned("xx", 0, 1),
        planned("yyy", 0, 2),
        planned("zzzz", 2, 3),
        planned("sssss", 1, 1),
        planned("llllll", 1, 4),
    )
    file = tmp_path / "trace.json"
    times = [LayerTime(modules=("a",), phase="forward", operation="o", ns=(1000,))] * 4
    write_divided(times, file, on_device=False)
    report = ArenaReport(steps=STEPS, buffers=buffers, sizes={"arena": 20, "state": 1})
    found = memory_of_plan(report, read_trace(file))
    assert {b.name[0]: (b.category, b.first, b.last) for b in found.blocks} == {
        "w": ("parameters", 0, 4), "x": ("temporary", 0, 2), "y": ("activations", 0, 3),
        "z": ("temporary", 2, 4), "s": ("workspace", 1, 2), "l": ("activations", 1, 4),
    }  # fmt: skip
    assert (found.peak.moment, found.peak.bytes, found.reserved) == (1, 1 + 2 + 3 + 5 + 6, 21)
    assert found.seconds == pytest.approx((0, 1e-6, 2e-6, 3e-6, 4e-6))
    write_divided(times[:3], file, on_device=False)
    assert memory_of_plan(report, read_trace(file)).seconds == ()
    assert memory_of_plan(report, read_trace(file), times).seconds == found.seconds


# ---------------------------------------------------------------- real levels


@pytest.fixture(scope="module")
def folder(forked: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_profile(tmp_path_factory.getbasetemp())[1]


@pytest.fixture(scope="module")
def profiled(forked: None, tmp_path_factory: pytest.TempPathFactory) -> ProfileResult:
    return saved_profile(tmp_path_factory.getbasetemp())[0]


def test_eagers_state_has_the_bytes_of_the_models_shapes(profiled: ProfileResult) -> None:
    found = profiled.profiles[0]
    eager = found.levels[0].memory
    assert eager is not None
    module = build_module(found.workload.source)
    shapes = {name: 4 * parameter.numel() for name, parameter in module.named_parameters()}
    for category in ("parameters", "gradients", "optimizer state"):
        blocks = [b for b in eager.blocks if b.category == category and b.last == eager.length]
        assert {b.name: b.bytes for b in blocks} == shapes
    inputs = sum(math.prod(item.shape) * 4 for item in found.workload.inputs)
    assert sum(b.bytes for b in eager.blocks if b.name.startswith("input ")) == (
        inputs * found.workload.batches
    )
    activations = [b for b in eager.blocks if b.category == "activations"]
    assert {b.operator for b in activations} >= {"aten::tanh", "aten::avg_pool2d"}
    assert {b.layer for b in activations} >= {"tanh", "pool"}
    assert all(b.phase == "forward" for b in activations)
    assert eager.peak.bytes >= 3 * sum(shapes.values()) - max(shapes.values())


def test_onednns_arena_is_what_its_plan_says(profiled: ProfileResult) -> None:
    if len(profiled.profiles[0].levels) < 2:
        pytest.skip("oneDNN is not installed")
    memory = profiled.profiles[0].levels[1].memory
    assert memory is not None
    arena = [b for b in memory.blocks if b.place == "arena"]
    for position, one in enumerate(arena):
        for other in arena[:position]:
            if one.first < other.last and other.first < one.last:
                assert one.offset is not None and other.offset is not None
                assert (
                    one.offset + one.bytes <= other.offset
                    or other.offset + other.bytes <= one.offset
                ), (one, other)
    highest = max((b.offset or 0) + b.bytes for b in arena)
    assert highest <= memory.sizes["arena"] < highest + 64  # a cache line
    assert memory.peak.bytes <= memory.reserved == sum(memory.sizes.values())
    assert len(memory.seconds) == memory.length + 1
    categories = {b.category for b in memory.blocks}
    assert {"parameters", "optimizer state", "gradients", "inputs", "activations"} <= categories


@pytest.mark.slow
def test_memory_is_shown_and_drawn(profiled: ProfileResult, folder: Path) -> None:
    text = io.StringIO()
    render(profiled.profiles, by="memory", top=5, console=Console(file=text, width=100))
    shown = text.getvalue()
    assert max(map(len, shown.splitlines())) <= 100
    for words in ("parameters", "optimizer state", "activations", "reserved", "fc1.weight", "more"):
        assert words in shown
    pytest.importorskip("matplotlib")
    drawn = profiled.figures(folder.parent / "figures")
    levels = [level.level for level in profiled.profiles[0].levels]
    expected = {f"memory-{name}.svg" for name in levels}
    expected |= {f"arena-{name}.svg" for name in levels if name == "onednn"}
    assert expected <= {file.name for file in drawn}
    again = profiled.figures(folder.parent / "again")
    assert [file.read_bytes() for file in again] == [file.read_bytes() for file in drawn]


def test_a_saved_memory_is_shown_again(profiled: ProfileResult, folder: Path) -> None:
    assert golow.load_profile(folder).profiles == profiled.profiles
