"""A plan from steps written by hand: lifetimes, places, and the table that people read."""

from __future__ import annotations

from itertools import pairwise

import pytest

from golow.lower.plan.listing import table_lines
from golow.lower.plan.plan import Buffer, Operand, Plan, Step, make_plan


def operand(buffer: int) -> Operand:
    return Operand(buffer, (4, 4), "ab", 64)


def step(
    reads: list[int], writes: list[int], operation: str = "op", once: bool = False,
    modules: tuple[str, ...] = ("layer",),
) -> Step:  # fmt: skip
    return Step(
        operation,
        modules,
        "forward",
        tuple(operand(index) for index in reads),
        tuple(operand(index) for index in writes),
        "numpy",
        once,
    )


def chain(length: int, kept: list[int]) -> Plan:
    """A chain of steps, each reading what the one before wrote, in buffers of 64 bytes."""
    steps = [step([i], [i + 1]) for i in range(length)]
    buffers = [Buffer(f"v{i}", 64, "arena") for i in range(length + 1)]
    return make_plan("chain", steps, buffers, kept)


def test_a_chain_needs_room_for_two() -> None:
    plan = chain(6, [6])
    assert plan.sizes["arena"] == 128
    offsets = [buffer.offset for buffer in plan.buffers]
    assert all(one != next_one for one, next_one in pairwise(offsets))


def test_what_is_kept_lives_to_the_end() -> None:
    plan = chain(6, [1, 6])
    kept = plan.buffers[1].offset
    assert all(buffer.offset != kept for buffer in plan.buffers[2:])
    assert plan.sizes["arena"] == 192
    # ... and from its first writer on only: before that its room is another's
    assert chain(6, [6]).sizes["arena"] == 128


def test_a_value_that_is_read_late_keeps_its_room() -> None:
    steps = [step([], [0]), step([0], [1]), step([1], [2]), step([2, 0], [3])]
    plan = make_plan("late", steps, [Buffer(f"v{i}", 64, "arena") for i in range(4)], [3])
    assert plan.buffers[0].offset not in {plan.buffers[i].offset for i in (1, 2, 3)}
    assert plan.sizes["arena"] == 192


def test_a_step_that_writes_over_its_argument_needs_no_second_buffer() -> None:
    steps = [step([], [0]), step([0], [0]), step([0], [1])]
    buffers = [Buffer("a", 64, "arena"), Buffer("b", 64, "arena")]
    assert make_plan("over", steps, buffers, [1]).sizes["arena"] == 128


def test_scratch_shares_with_what_is_not_alive_then() -> None:
    """A scratchpad is written by one step and read by none."""
    steps = [step([], [0, 1]), step([0], [2, 3])]
    buffers = [Buffer(name, size, "arena") for name, size in
               (("a", 64), ("a.scratch", 512), ("b", 64), ("b.scratch", 512))]  # fmt: skip
    plan = make_plan("scratch", steps, buffers, [2])
    assert plan.buffers[1].offset == plan.buffers[3].offset == 0
    assert plan.sizes["arena"] == 640


def test_each_place_has_offsets_of_its_own() -> None:
    steps = [
        step([0], [1], once=True),
        step([1], [2], once=True),
        step([2], [3], once=True),
        step([3, 4, 6], [5]),
    ]
    buffers = [
        Buffer("weight", 256, "once"),
        Buffer("folded", 256, "once"),
        Buffer("trimmed", 256, "once"),
        Buffer("reordered", 320, "constant"),
        Buffer("x", 1024, "input"),
        Buffer("y", 100, "arena"),
        Buffer("momentum", 10, "state"),
    ]
    plan = make_plan("places", steps, buffers, [5])
    assert plan.sizes == {"arena": 128, "once": 512, "constant": 320, "state": 64}
    assert [buffer.offset for buffer in plan.buffers[3:]] == [0, 0, 0, 0]
    assert plan.buffers[0].offset == plan.buffers[2].offset != plan.buffers[1].offset
    assert [b._replace(offset=0) for b in plan.buffers] == buffers  # nothing else was changed


@pytest.mark.parametrize("place", ["constant", "state"])
def test_constants_and_state_never_share(place: str) -> None:
    """They are read by every iteration, whichever steps read them."""
    steps = [step([0], [2]), step([1], [3])]
    buffers = [Buffer("a", 64, place), Buffer("b", 64, place),  # type: ignore[arg-type]
               Buffer("c", 64, "arena"), Buffer("d", 64, "arena")]  # fmt: skip
    plan = make_plan("lasting", steps, buffers, [3])
    assert {plan.buffers[0].offset, plan.buffers[1].offset} == {0, 64}
    assert plan.sizes[place] == 128


def test_constants_and_state_need_no_step() -> None:
    plan = make_plan("unread", [], [Buffer("a", 64, "constant"), Buffer("b", 64, "state")], [])
    assert plan.sizes["constant"] == plan.sizes["state"] == 64


@pytest.mark.parametrize("place", ["arena", "once"])
def test_a_buffer_that_no_step_touches_has_a_place_too(place: str) -> None:
    buffers = [Buffer("v", 64, "arena"), Buffer("unread", 64, place)]  # type: ignore[arg-type]
    plan = make_plan("unread", [step([], [0])], buffers, [0])
    assert plan.sizes[place] >= 64


def test_the_model_may_return_what_no_step_wrote() -> None:
    plan = make_plan("nothing", [], [Buffer("v", 64, "arena")], [0])
    assert plan.sizes["arena"] == 64


def test_the_table_can_be_read() -> None:
    steps = [
        step([0], [1], "reorder", once=True, modules=("conv",)),
        step([2, 1], [3], "convolution", modules=("conv", "bn", "relu")),
    ]
    buffers = [
        Buffer("weight", 64, "once"),
        Buffer("reordered", 64, "constant"),
        Buffer("x", 4096, "input"),
        Buffer("y", 2048, "arena"),
    ]
    plan = make_plan("table", steps, buffers, [3])
    lines = table_lines(plan)
    assert len(lines) == 1 + len(steps) + 2
    assert lines[0].split() == "step operation layer reads writes at bytes by".split()
    assert lines[1].split()[:4] == ["0", "once", "reorder", "conv"]
    assert lines[2].split() == (
        "1 convolution conv +2 x:ab reordered:ab y:ab a0 2048 numpy".split()
    )
    assert lines[3] == ""
    sizes = "arena 2,048 B, once 64 B, constant 64 B, state 0 B"
    assert lines[4] == f"2 steps; {sizes}; 0 B moved for layout alone"
    start = lines[0].index("operation")
    assert lines[1][start:].startswith("reorder")  # columns stand under their headers
    assert lines[2][start:].startswith("convolution")
    assert all(line == line.rstrip() for line in lines)
