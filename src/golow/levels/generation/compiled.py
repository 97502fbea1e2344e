"""``compile:static``: the step module under torch.compile, prompt and step each for their shape;
``compile:static-cudagraphs`` replays the step as a CUDA graph, as gpt-fast does."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from golow.levels.generation.program import TextProgram
from golow.levels.generation.static import Static, step_module
from golow.workload.generation.text_bundle import TextBundle


def compiled(bundle: TextBundle) -> Static:
    """The generator."""
    # Two shapes, no symbolic one: a prompt of another length would compile once more.
    return Static(torch.compile(step_module(bundle), dynamic=False))  # type: ignore[arg-type]


class Replayed(Static):
    """A generator whose steps of one token are CUDA graphs. The caches are at the graph's
    addresses; a prompt runs without a graph."""

    def __init__(self, step: nn.Module) -> None:
        super().__init__(step)
        for buffer in step.buffers():
            torch._dynamo.mark_static_address(buffer)
        torch._dynamo.mark_static_address(self._position)
        self._prompt = torch.compile(step, dynamic=False)
        self._token = torch.compile(step, dynamic=False, mode="reduce-overhead")

    def step(self, tokens: Tensor, position: int) -> Tensor:
        """Logits after the next tokens, in memory that the next step writes again."""
        self._position.fill_(position)
        if tokens.shape[1] > 1:
            logits: Tensor = self._prompt(tokens, self._position)
            return logits
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        return self._token(tokens, self._position)  # type: ignore[no-any-return]


def program(variant: str) -> TextProgram:
    """The worker's side."""
    if variant == "cudagraphs":
        return TextProgram(lambda bundle: Replayed(step_module(bundle)))
    return TextProgram(compiled)
