"""A level that keeps the keys and values of the first source that it ever reads."""

from __future__ import annotations

import torch
from torch import Tensor

from golow.levels.generation.program import TextProgram
from golow.levels.generation.static import Static, step_module
from golow.worker.serve import run
from golow.workload.generation.text_bundle import TextBundle


class OldSource(Static):
    """A static cache whose source is never replaced."""

    def prefill(self, tokens: Tensor) -> Tensor:
        """Logits after the tokens that texts begin with."""
        kept = {
            name: value.clone()
            for name, value in self._step.named_buffers()
            if name.startswith("source_")
        }
        logits = super().prefill(tokens)
        for name, value in kept.items():
            if value.any():
                self._step.get_buffer(name).copy_(value)
        return logits


def program(bundle: TextBundle) -> OldSource:
    """The generator."""
    return OldSource(step_module(bundle))


if __name__ == "__main__":
    torch.set_num_threads(1)
    run(lambda: TextProgram(program))
