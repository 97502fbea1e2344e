"""A level that generates texts with a planted fault: ``planted_texts.py FAULT``."""

from __future__ import annotations

import os
import sys
import time

import torch
from torch import Tensor, nn

from golow.levels.generation.program import TextProgram
from golow.levels.generation.static import Static, step_module
from golow.records.errors import Unsupported
from golow.worker.serve import run
from golow.worker.text_program import Draws, Tokens
from golow.workload.generation.text_bundle import TextBundle

FAULTS = ("stale row", "off by one", "stored", "skips", "clock", "dies", "refuses", "sound")
PAUSE = 0.04  # seconds a token, of the level whose clock is wrong


class Faulty(Static):
    """A static cache with a fault in it."""

    def __init__(self, step: nn.Module, fault: str) -> None:
        super().__init__(step)
        self._fault = fault

    def step(self, tokens: Tensor, position: int) -> Tensor:
        """Logits after the next tokens."""
        single = tokens.shape[1] == 1
        if self._fault == "off by one" and single and position:
            return super().step(tokens, position - 1)
        before = {name: value.clone() for name, value in self._step.named_buffers()}
        logits = super().step(tokens, position)
        if self._fault == "stale row" and single and position % 5 == 2:
            for name, value in self._step.named_buffers():
                value.copy_(before[name])
        return logits


class FaultyProgram(TextProgram):
    """Cheats while it generates; what it is forced to compute is right."""

    def __init__(self, fault: str) -> None:
        super().__init__(self._built)
        self._fault = fault
        self._kept: list[list[int]] = []

    def _built(self, bundle: TextBundle) -> Static:
        if self._fault == "refuses":
            raise Unsupported("", "it was planted to refuse")
        return Faulty(step_module(bundle), self._fault)

    def prompt(self, tokens: Tokens, draws: Draws) -> None:
        """Take the beginning of the next texts."""
        super().prompt(tokens, draws)
        self._position = 0

    def first(self) -> list[int]:
        """Compute the prompt."""
        return self._cheated(super().first)

    def following(self) -> list[int]:
        """Choose the next tokens."""
        if self._fault == "skips" and self._made % 10 == 9:
            self._made += 1
            found: list[int] = self._last[:, 0].tolist()
            return found
        if self._fault == "dies" and self._kept:
            os._exit(3)
        if self._fault == "clock":
            time.sleep(PAUSE)
        return self._cheated(super().following)

    def _cheated(self, compute: object) -> list[int]:
        """The tokens; of a text before, if they are stored."""
        place, self._position = self._position, self._position + 1
        if self._fault == "stored" and place < len(self._kept):
            return self._kept[place]
        found: list[int] = compute()  # type: ignore[operator]
        if self._fault == "stored" or place == self._workload.tokens - 1:
            self._kept.append(found)
        return found


def main(fault: str) -> None:
    """Serve it."""
    if fault == "clock":
        clock, began = time.perf_counter_ns, time.perf_counter_ns()
        time.perf_counter_ns = lambda: began + (clock() - began) // 2
    torch.set_num_threads(1)
    run(lambda: FaultyProgram(fault))


if __name__ == "__main__":
    main(sys.argv[1])
