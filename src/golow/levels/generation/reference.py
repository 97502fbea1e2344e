"""The reference: the step module in float64, which also checks the tokens that levels chose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from golow.levels.generation.double_module import DoubleModule
from golow.levels.generation.program import Generator, TextProgram
from golow.levels.generation.static import Static
from golow.levels.torch.in_double import InDouble
from golow.levels.torch.rounded_operations import Grid, RoundedOperations
from golow.worker.text_program import Draws, Moved, Tokens
from golow.workload.generation.sampling import explaining_errors
from golow.workload.generation.step_modules import is_own_step, step_of

MOST_TEXTS = 32  # that are replayed together


class Reference(Static):
    """The step module in float64. grid: the numbers to which operations round, if any."""

    def __init__(self, step: nn.Module, grid: Grid | None = None) -> None:
        super().__init__(step.double())
        self._grid = grid

    def _run(self, tokens: Tensor, position: Tensor, *source: Tensor) -> Tensor:
        """Logits in float64."""
        with self._arithmetic():
            return super()._run(tokens, position, *source).double()

    @contextmanager
    def _arithmetic(self) -> Iterator[None]:
        with ExitStack() as modes:
            modes.enter_context(InDouble())
            if self._grid is not None:
                modes.enter_context(RoundedOperations(self._grid))
            yield


class ReferenceProgram(TextProgram):
    """Serves the reference."""

    def __init__(self) -> None:
        super().__init__(lambda bundle: self._built(bundle.workload.batch))
        self._moved: Moved | None = None

    def move(self, moved: Moved | None) -> None:
        """Perturb the reference from now on."""
        self._moved = moved
        self._double.move(moved)
        self._generator = self._built(self._workload.batch)

    def force(self, tokens: Tokens, prompt: int, positions: Sequence[int], file: Path) -> None:
        """Write the logits after these positions; the tokens between two positions are processed at
        once."""
        given, begin, found = torch.tensor(tokens, device=self._device), 0, {}
        for place in sorted(positions):
            part = given[:, begin : place + 1]
            generator = self._generator
            logits = generator.step(part, begin) if begin else generator.prefill(part)
            found[f"output/{place}"] = logits.clone()
            begin = place + 1
        save_file(found, file)

    def replay(self, tokens: Tokens, prompt: int, draws: Draws) -> list[list[float]]:
        """The least errors that explain the tokens after the prompt."""
        given = torch.tensor(tokens, device=self._device)
        drawn = torch.tensor(draws, dtype=torch.float64, device=self._device)
        generator, size = self._generator, self._workload.batch
        if not is_own_step(self._double.module):
            size = min(len(given), MOST_TEXTS)
            generator = self._built(size)
        errors: list[list[float]] = []
        for begin in range(0, len(given), size):
            part = given[begin : begin + size]
            # Texts that are missing in the last part repeat its first one.
            texts = torch.cat([part, part[:1].expand(size - len(part), -1)])
            its = drawn[:, begin : begin + size] if len(draws) else None
            errors += self._replayed(generator, texts, prompt, its, len(part)).tolist()
        return errors

    def _replayed(
        self, generator: Generator, texts: Tensor, prompt: int, draws: Tensor | None, count: int
    ) -> Tensor:
        sampling, found = self._workload.sampling, []
        logits = generator.prefill(texts[:, :prompt])
        for made, place in enumerate(range(prompt, texts.shape[1])):
            if made:
                logits = generator.step(texts[:, place - 1 : place], place - 1)
            own = None if draws is None else draws[made]
            found.append(explaining_errors(logits[:count], texts[:count, place], sampling, own))
        return torch.stack(found, 1)

    def _built(self, batch: int) -> Reference:
        """The reference for this many texts; all share the weights."""
        moved, grid = self._moved, None
        if moved is not None and moved.digits:
            grid = Grid(moved.digits, moved.least, moved.seed)
        work, module = self._workload, self._double.module
        with InDouble():  # a model from transformers is called to allocate its cache
            step = step_of(module, batch, work.longest, work.prompt)
        return Reference(step, grid)

    @cached_property
    def _double(self) -> DoubleModule:
        return DoubleModule(self._bundle.module())


def program(variant: str) -> ReferenceProgram:
    """The worker's side."""
    return ReferenceProgram()
