"""What a worker of one written program refuses, whichever framework runs it. Needs none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from golow.levels.traced.program import SourceProgram
from golow.records.errors import Unsupported

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
