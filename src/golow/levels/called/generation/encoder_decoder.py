"""A compiled encoder-decoder model that writes text: one more plan reads a source, and keeps the
keys and values of the encoder's output as state for the others."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from golow.levels.called.assembly import TINY
from golow.levels.called.generation.forms import BEGINNING
from golow.levels.called.generation.generation import Generation
from golow.levels.called.generation.generator import GREEDY, Generator, GeneratorParts
from golow.levels.called.generation.texts import Ids, Texts, require_known, texts_of
from golow.records.errors import GolowError
from golow.records.text import Sampling
from golow.workload.generation.encoder_decoder_step import EncoderDecoderStep
from golow.workload.generation.encoder_sources import (
    ONE_NUMBER,
    longest_target,
    reads_of,
    require_generating,
)
from golow.workload.generation.own_positions import unchanged


class EncoderDecoder(Generator):
    """An encoder-decoder model, compiled to write text. `prefill`, `generate` and `stream` take the
    source of new texts in the place of ids: int64 [batch, count] or float32 features, of the size
    that it was compiled for. position counts the decoder's tokens. starts: those with which it
    begins, int64 [batch, count].
    """

    def __init__(self, parts: GeneratorParts, start: tuple[int, ...]) -> None:
        super().__init__(parts)
        sample = parts.form.sample(BEGINNING, self.device)
        self._source = sample[-1]
        starts = torch.tensor([start], dtype=torch.int64, device=self.device)
        self.starts = starts.expand(self.batch, -1).contiguous()
        self._waits = False  # a source that no plan has read
        reads, writes = self._at[1]
        self._at_source = [*reads, self._source.data_ptr()], writes

    def prefill(self, ids: Ids, attention_mask: Tensor | None = None) -> Tensor:
        """Read the source of new texts, and the start tokens; return the logits of the next token,
        float32 [batch, vocabulary], in memory that the next call overwrites. Raises `GolowError`
        for a source of another size."""
        self._take(ids, attention_mask)
        return super().prefill(self.starts)

    def stream(
        self,
        ids: Ids,
        tokens: int = 128,
        *,
        attention_mask: Tensor | None = None,
        sampling: Sampling = GREEDY,
        stop: Collection[int] = (),
    ) -> Iterator[Tensor]:
        """Generate as `Generator.stream` does, from a source."""
        self._take(ids, attention_mask)
        return super().stream(self.starts, tokens, sampling=sampling, stop=stop)

    def _take(self, source: Any, mask: Tensor | None) -> None:
        """Keep a source until `_read`, and begin new texts."""
        self._require_open()
        if not isinstance(source, Tensor) or source.shape != self._source.shape:
            given = list(source.shape) if isinstance(source, Tensor) else type(source).__name__
            raise GolowError(
                f"the source is {given}, and {self.name} was compiled for "
                f"{list(self._source.shape)}",
                "give a tensor of this size, or compile with other sizes in golow.Generation(batch="
                "..., source=...).",
            )
        if source.is_floating_point() != self._source.is_floating_point():
            raise GolowError(
                f"the source is {source.dtype}, not {self._source.dtype}",
                "give token ids as int64, and features as float32.",
            )
        if mask is not None and not bool(mask.all()):
            raise GolowError(
                "attention_mask hides a part of the source, which is read whole",
                "compile with the source= of the text, and leave out padding.",
            )
        if not source.is_floating_point():
            require_known(source, self.vocabulary)
        self.reset()
        self._source.copy_(source)
        self._waits = True

    def _read(self, texts: Texts) -> Tensor:
        if not self._waits:
            return super()._read(texts)
        self._require_fitting(texts)
        self._waits = False
        self._given[1].copy_(texts.ids[:, :1])
        self._text[:, :1].copy_(texts.ids[:, :1])
        self._place(0)
        self._runs[BEGINNING](*self._at_source)
        self.position = 1
        if texts.ids.shape[1] > 1:
            return super()._read(texts_of(texts.ids[:, 1:].contiguous(), None, self.device))
        return self._logits


def encoder_decoder_step(module: nn.Module, generation: Generation) -> EncoderDecoderStep:
    """Return the step of a model from transformers. Raises `GolowError` for a GPU, for a model that
    golow cannot begin, and for sizes that do not fit it."""
    name = type(module).__name__
    require_generating(module, name)
    if next(module.parameters()).is_cuda:
        raise GolowError(
            f"{name} has an encoder, and is compiled for text on a CPU only", "call .cpu() first."
        )
    source, longest = generation.source, generation.longest
    _require_source(module, name, source)
    _require_start(module, name, generation)
    most = longest_target(module)
    if most is not None and max(source, longest) > most:
        raise GolowError(
            f"{name} has positions for {most} tokens, not {max(source, longest)}",
            "use smaller sizes in golow.Generation.",
        )
    return EncoderDecoderStep(module, generation.batch, source or ONE_NUMBER, longest).eval()


def _require_source(module: nn.Module, name: str, source: int) -> None:
    if reads_of(module, name) == "features":
        if source:
            raise GolowError(
                f"the encoder of {name} reads features of one size",
                "leave out source= in golow.Generation.",
            )
    elif not source:
        raise GolowError(
            f"the encoder of {name} reads tokens, and their number is not given",
            "for example golow.Generation(longest=128, source=512).",
        )


def _require_start(module: Any, name: str, generation: Generation) -> None:
    vocabulary = module.get_output_embeddings().weight.shape[0]
    for token in generation.start:
        if not 0 <= token < vocabulary:
            raise GolowError(
                f"the start token {token} is not one of the {vocabulary} tokens of {name}",
                "start= in golow.Generation takes numbers of tokens.",
            )
    if len(generation.start) >= generation.longest:
        raise GolowError(
            f"{len(generation.start)} start tokens leave no room in a text of {generation.longest}",
            "use a larger longest in golow.Generation.",
        )


def distance(generator: EncoderDecoder, step: EncoderDecoderStep, text: Tensor) -> float:
    """Return the distance of logits from the module's, relative to the largest of these: after a
    random source, and after one more token. text: random tokens, int64 [batch, count]."""
    length, source = text.shape[1], torch.randn(step.source.shape)
    if not step.source.is_floating_point():
        source = text[:, torch.arange(step.source.shape[1]) % length]
    starts, begin = generator.starts, torch.zeros((), dtype=torch.int64)
    with unchanged(step):
        expected = [step(starts, begin, source), step(text[:, :1], begin + starts.shape[1])]
    found = [generator.prefill(source).clone(), generator.decode(text[:, :1])]
    pairs = zip(found, expected, strict=True)
    off = max((a - b).abs().max() / b.abs().max().clamp(min=TINY) for a, b in pairs)
    generator.forget()
    return float(off)
