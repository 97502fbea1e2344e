"""Buffers that one step of a module writes and another one only reads are state in both."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from golow.lower.capture.capture import capture_step

ROW = torch.zeros(2, 3)


class Keeping(nn.Module):
    """Keeps what a step is given, and adds it in every step. held: read as an attribute of another
    object, as transformers does."""

    kept: Tensor

    def __init__(self, held: bool) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(2, 3))
        self._place = [self.kept] if held else None

    def forward(self, row: Tensor, new: Tensor | None = None) -> Tensor:
        """[2, 3] -> [2, 3]"""
        kept = self.kept if self._place is None else self._place[0]
        if new is not None:
            kept.copy_(new)
        return row + kept


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("inputs", [(ROW,), (ROW, ROW)], ids=["reads", "writes"])
def test_a_shared_buffer_is_returned(held: bool, inputs: tuple[Tensor, ...]) -> None:
    graph = capture_step("keeping", Keeping(held), inputs, shared=["kept"]).graph
    buffers = [(item.kind, item.target) for item in graph.outputs if item.kind == "buffer"]
    assert buffers == [("buffer", "kept")]
    assert ("buffer", "kept") in [(item.kind, item.target) for item in graph.inputs]


@pytest.mark.parametrize("held", [True, False])
def test_a_buffer_that_no_other_step_writes_is_not(held: bool) -> None:
    graph = capture_step("keeping", Keeping(held), (ROW,)).graph
    assert [item.kind for item in graph.outputs] == ["output"]
