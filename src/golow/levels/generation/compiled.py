"""``compile:static``: the step module under torch.compile, prompt and step each for their shape."""

from __future__ import annotations

import torch

from golow.levels.generation.program import TextProgram
from golow.levels.generation.static import Static, step_module
from golow.workload.generation.text_bundle import TextBundle


def compiled(bundle: TextBundle) -> Static:
    """The generator."""
    # Two shapes, no symbolic one: a prompt of another length would compile once more.
    return Static(torch.compile(step_module(bundle), dynamic=False))  # type: ignore[arg-type]


def program(variant: str) -> TextProgram:
    """The worker's side."""
    return TextProgram(compiled)
