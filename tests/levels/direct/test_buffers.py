"""Where buffers are, once all steps are known."""

from __future__ import annotations

from golow.levels.direct.buffers import UNDECIDED, Buffers
from golow.lower.plan.plan import Operand, Step


def step(reads: int, once: bool) -> Step:
    operand = Operand(reads, (1,), "rows", 4)
    return Step("copy", ("layer",), "forward", (operand,), (), once=once)


def test_iterations_keep_what_they_read_and_nothing_that_loading_alone_reads() -> None:
    buffers = Buffers()
    for name in ("read when loading", "read by iterations", "returned", "nobody's"):
        buffers.add(name, 4, UNDECIDED)
    arena = buffers.add("a value", 4, "arena")
    buffers.decide_places([step(0, once=True), step(1, once=False), step(arena, once=False)], [2])
    places = [buffers.place(number) for number in range(arena + 1)]
    assert places == [UNDECIDED, "constant", "constant", UNDECIDED, "arena"]
