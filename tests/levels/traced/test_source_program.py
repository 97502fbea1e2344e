"""What a worker of one written program refuses, and what it does between iterations, whichever
framework runs it. Needs none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from golow.levels.direct.bundle_arrays import Batch
from golow.levels.traced.execution import SourceExecution
from golow.levels.traced.program import SourceProgram
from golow.records.errors import Unsupported
from golow.worker.protocol import Marks

REFUSED: dict[str, Callable[[SourceProgram], object]] = {
    "its plan": lambda program: program.arena(),
    "times of layers": lambda program: program.run_timed(0),
    "values of operations": lambda program: program.values(0, 0.1, 0, 1, Path("values")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_steps_is_unsupported(name: str) -> None:
    """Not a failure: the check of a level goes on without it."""
    with pytest.raises(Unsupported):
        REFUSED[name](SourceProgram())


class Device:
    """Where a framework has its copies of a batch. put: the names of what went there."""

    def __init__(self) -> None:
        self.put: list[str] = []

    def put_batch(self, batch: Batch) -> dict[str, Any]:
        self.put += ["/".join(key) for key in batch]
        return {"/".join(key): array.copy() for key, array in batch.items()}


def test_of_a_marked_batch_only_the_marked_input_goes_to_the_device_again() -> None:
    """It happens between two timed iterations, where golow's clock allows little time."""
    program, device = SourceProgram(), Device()
    program.execution = cast("SourceExecution", device)
    program._arrays = [
        {("input", str(place)): np.full((4, 3), 7 + place) for place in range(2)} for _ in range(2)
    ]
    program._batches = [device.put_batch(batch) for batch in program._arrays]
    before = list(program._batches)
    marks = Marks(input=1, start=0, length=2, low=0, high=5, whole=True, seed=3)
    device.put.clear()
    with program.marked(marks) as write:
        write(0)
        assert device.put == ["input/1"]
        marked = program._batches[0]
        assert marked["input/1"][:, :2].max() <= 5
        assert marked["input/0"] is before[0]["input/0"]
        assert program._batches[1] is before[1]
    assert program._batches[0]["input/1"].min() == 8
