"""``eager:static``: the step module in PyTorch, its caches written in place."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from golow.levels.generation.program import TextProgram
from golow.workload.generation.step_modules import device_of, step_of
from golow.workload.generation.text_bundle import TextBundle


class Static:
    """A generator over a step module."""

    def __init__(self, step: nn.Module) -> None:
        self._step = step
        self._position = torch.zeros((), dtype=torch.long, device=device_of(step))
        self._behind: Tensor | None = None  # tokens by which each text is shorter, [batch, 1]

    def prefill(self, tokens: Tensor) -> Tensor:
        """Logits after the tokens that texts begin with."""
        return self.step(tokens, 0)

    def prefill_apart(self, texts: Sequence[Tensor]) -> Tensor:
        """Return logits after texts of different lengths. First reads all tokens but the last of
        each text, padded at the end with zeros, whose rows later tokens overwrite; then the last
        ones."""
        ids = pad_sequence(list(texts), batch_first=True)
        lengths = torch.tensor([len(text) for text in texts], device=ids.device)[:, None]
        most = ids.shape[1]
        self._behind = most - lengths
        self._run(ids[:, :-1].contiguous(), torch.zeros_like(lengths))
        return self._run(ids.gather(1, lengths - 1), lengths - 1)

    def step(self, tokens: Tensor, position: int) -> Tensor:
        """Logits after the next tokens."""
        if not position:
            self._behind = None  # new texts, of one length
        if self._behind is not None:
            return self._run(tokens, position - self._behind)
        self._position.fill_(position)
        return self._run(tokens, self._position)

    def _run(self, tokens: Tensor, position: Tensor) -> Tensor:
        logits: Tensor = self._step(tokens, position)
        return logits


def step_module(bundle: TextBundle) -> nn.Module:
    """The step module of a bundle, with caches for its texts."""
    return step_of(bundle.module(), bundle.workload.batch, bundle.workload.longest)


def program(variant: str) -> TextProgram:
    """The worker's side."""
    return TextProgram(lambda bundle: Static(step_module(bundle)))
