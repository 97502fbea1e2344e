"""The worker's program of a level that generates texts: the level computes the logits; everything
else is shared."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from safetensors.torch import save_file
from torch import Tensor

from golow.worker.protocol import LoadReport
from golow.worker.text_program import Draws, Tokens
from golow.workload.generation.sampling import choose
from golow.workload.generation.text_bundle import TextBundle

WARMING = 3  # steps of the first text: a CUDA graph is recorded in the second


class Generator(Protocol):
    """The part that differs between levels: a model with a cache of the text so far."""

    def prefill(self, tokens: Tensor) -> Tensor:
        """Begin texts with these tokens, int64 [batch, count]: logits [batch, vocabulary] after
        the last one."""

    def step(self, tokens: Tensor, position: int) -> Tensor:
        """Logits after the next token of each text, [batch, 1], after ``position`` others."""

    def prefill_apart(self, texts: Sequence[Tensor]) -> Tensor:
        """Begin texts of different lengths, int64 [count] each. The position of later steps is that
        of the longest."""


@runtime_checkable
class Feeding(Protocol):
    """A generator whose device chooses the likeliest tokens and feeds them to its next step."""

    def likeliest(self, tokens: Tensor, count: int) -> Iterator[Tensor]:
        """Begin texts with these tokens, and yield this many next ones, int64 [batch] each, in
        memory that the next one overwrites."""


class TextProgram:
    """Serves the generator that a level builds from a bundle."""

    def __init__(self, make: Callable[[TextBundle], Generator]) -> None:
        self._make = make

    def load(self, bundle: Path) -> LoadReport:
        """Build the generator; this includes its first text, which has the shapes of all others."""
        begin = time.perf_counter()
        torch.set_grad_enabled(False)  # as transformers' generate runs
        self._bundle = TextBundle(bundle)
        self._workload = self._bundle.workload
        self._device = torch.device(self._workload.device)
        torch.backends.cuda.matmul.allow_tf32 = self._workload.precision == "tf32"
        self._generator = self._make(self._bundle)
        made = time.perf_counter()
        nothing = [[0] * count for count in self._workload.prompts]
        self.prompt(nothing, [])
        self._begin()
        token = torch.zeros(self._workload.batch, 1, dtype=torch.long, device=self._device)
        for place in range(self._workload.prompt, self._workload.prompt + WARMING):
            if place < self._workload.longest:
                self._generator.step(token, place).sum().item()
        return LoadReport(phases={"load": made - begin, "build": time.perf_counter() - made})

    def prompt(self, tokens: Tokens, draws: Draws) -> None:
        """Take the beginning of the next texts."""
        self._prompt = [torch.tensor(text, device=self._device) for text in tokens]
        self._length = max(map(len, tokens))
        self._draws = [
            torch.tensor(drawn, dtype=torch.float64, device=self._device) for drawn in draws
        ]
        self._made = 0
        self._coming: Tensor | None = None
        self._stream: Iterator[Tensor] | None = None

    def first(self) -> list[int]:
        """Compute the prompt and choose the first tokens."""
        feeds = self._device.type == "cuda" and self._workload.sampling.is_greedy
        if feeds and isinstance(self._generator, Feeding):
            self._stream = self._generator.likeliest(
                torch.stack(self._prompt), self._workload.tokens
            )
            return self._read_behind(next(self._stream))
        return self._chosen(self._begin())

    def following(self) -> list[int]:
        """Feed the last tokens to the model and choose the next ones."""
        if self._stream is not None:
            return self._read_behind(next(self._stream) if self._coming is None else self._coming)
        return self._chosen(self._next() if self._coming is None else self._coming)

    def force(self, tokens: Tokens, prompt: int, positions: Sequence[int], file: Path) -> None:
        """Write the logits after these positions."""
        given, wanted, found = torch.tensor(tokens, device=self._device), set(positions), {}
        logits = self._generator.prefill(_whole(given[:, :prompt]))
        for place in range(prompt - 1, max(wanted) + 1):
            if place >= prompt:
                logits = self._generator.step(_whole(given[:, place : place + 1]), place)
            if place in wanted:
                found[f"output/{place}"] = logits.contiguous().clone()
        save_file(found, file)

    def _begin(self) -> Tensor:
        """The logits after the prompts."""
        if self._workload.lengths:
            return self._generator.prefill_apart(self._prompt)
        return self._generator.prefill(torch.stack(self._prompt))

    def _chosen(self, logits: Tensor) -> list[int]:
        draws = self._draws[self._made] if self._draws else None
        chosen = choose(logits, self._workload.sampling, draws)
        self._last = _whole(chosen[:, None])
        self._made += 1
        if self._device.type == "cuda":
            return self._read_behind(chosen)
        found: list[int] = chosen.tolist()
        return found

    def _next(self) -> Tensor:
        """The logits after the last tokens."""
        return self._generator.step(self._last, self._length + self._made - 1)

    def _read_behind(self, chosen: Tensor) -> list[int]:
        """Begin the next step before the host waits for its tokens, so that the GPU is not idle
        during the transfer."""
        there = chosen.to("cpu", non_blocking=True)
        read = torch.cuda.Event()  # type: ignore[no-untyped-call]
        read.record()
        if self._stream is not None:
            self._coming = next(self._stream, None)
        else:
            self._coming = self._next() if self._made < self._workload.tokens else None
        read.synchronize()
        found: list[int] = there.tolist()
        return found


def _whole(part: Tensor) -> Tensor:
    """A separate tensor: torch.compile would compile anew for the strides of a part."""
    return part.clone(memory_format=torch.contiguous_format)
