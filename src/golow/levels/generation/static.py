"""``eager:static``: the step module in PyTorch, its caches written in place."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from golow.levels.generation.program import TextProgram
from golow.workload.generation.encoder_decoder_step import EncoderDecoderStep
from golow.workload.generation.step_modules import device_of, step_of
from golow.workload.generation.text_bundle import TextBundle


class Static:
    """A generator over a step module."""

    def __init__(self, step: nn.Module) -> None:
        self._step = step
        self._position = torch.zeros((), dtype=torch.long, device=device_of(step))
        self._behind: Tensor | None = None  # tokens by which each text is shorter, [batch, 1]
        original = getattr(step, "_orig_mod", step)  # of a compiled module
        self._sources = original if isinstance(original, EncoderDecoderStep) else None
        self._ahead = 0  # tokens of a text that the decoder does not read

    def prefill(self, tokens: Tensor) -> Tensor:
        """Logits after the tokens that texts begin with, which are the source of an encoder if
        there is one."""
        if self._sources is None:
            return self.step(tokens, 0)
        self._ahead = tokens.shape[1] - 1
        self._position.fill_(0)
        start, source = self._sources.beginning(tokens)
        return self._run(start, self._position, source)

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
        self._position.fill_(position - self._ahead)
        return self._run(tokens, self._position)

    def _run(self, tokens: Tensor, position: Tensor, *source: Tensor) -> Tensor:
        logits: Tensor = self._step(tokens, position, *source)
        return logits


def step_module(bundle: TextBundle) -> nn.Module:
    """The step module of a bundle, with caches for its texts."""
    work = bundle.workload
    return step_of(bundle.module(), work.batch, work.longest, work.prompt)


def program(variant: str) -> TextProgram:
    """The worker's side."""
    return TextProgram(lambda bundle: Static(step_module(bundle)))
