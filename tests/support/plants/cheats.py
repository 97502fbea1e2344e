"""Workers that cheat while they are timed, and nowhere else.

``python tests/support/plants/cheats.py NAME`` serves eager, but for the cheat of that name in the
timed loop.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from golow.levels.torch.program import TorchProgram
from golow.worker.serve import run


class Idle(TorchProgram):
    """Computes nothing after the first iteration."""

    def iterate(self) -> None:
        if getattr(self, "_last", None) is None:
            super().iterate()
        self._next()


class Stored(TorchProgram):
    """Returns what it computed the first time for the same batch."""

    def iterate(self) -> None:
        stored = self.__dict__.setdefault("stored", {})
        key = self.position % len(self.inputs)
        if key in stored:
            self._next()
            self._last = stored[key]
        else:
            super().iterate()
            stored[key] = self._last


class StoredByContent(TorchProgram):
    """Returns what it computed for the same values, which it compares."""

    def iterate(self) -> None:
        stored = self.__dict__.setdefault("stored", {})
        inputs = self.inputs[self.position % len(self.inputs)]
        key = tuple(float(tensor.double().sum()) for tensor in inputs)
        if key in stored:
            self._next()
            self._last = stored[key]
        else:
            super().iterate()
            stored[key] = self._last


class OneSample(TorchProgram):
    """Computes one sample of the batch, and gives its result for all."""

    def _infer(self, inputs: tuple[Tensor, ...]) -> Any:
        if not self.__dict__.get("timed"):
            return super()._infer(inputs)
        output = super()._infer(tuple(tensor[:1] for tensor in inputs))
        return pytree.tree_map(lambda leaf: leaf.expand(len(inputs[0]), *leaf.shape[1:]), output)

    def _learn(self, inputs: tuple[Tensor, ...], targets: tuple[Tensor, ...]) -> Any:
        rows = slice(2 if self.__dict__.get("timed") else None)
        return super()._learn(tuple(t[rows] for t in inputs), tuple(t[rows] for t in targets))

    def iterate(self) -> None:
        self.timed = True
        super().iterate()
        self.timed = False


class StaleInput(TorchProgram):
    """From the second timed iteration on it computes with the first one's batch."""

    def seek(self, iteration: int) -> None:
        super().seek(iteration)
        self.first = iteration

    def iterate(self) -> None:
        position, self.position = self.position, getattr(self, "first", 0)
        super().iterate()
        self.position = position + 1


class SkippedUpdate(TorchProgram):
    """Every second timed step updates nothing."""

    steps = 0
    timed = False

    def iterate(self) -> None:
        self.timed = True
        super().iterate()
        self.timed = False

    def _update(self, optimizer: torch.optim.SGD) -> None:
        self.steps += 1
        if not self.timed or self.steps % 2:
            super()._update(optimizer)


class LastNodeMissing(TorchProgram):
    """The last layer is left out of the timed iteration: its result is that of zero weights."""

    def iterate(self) -> None:
        last = [m for m in self.module.modules() if isinstance(m, nn.Linear)][-1]
        handle = last.register_forward_hook(lambda module, given, output: output * 0)
        super().iterate()
        handle.remove()


class Lazy(TorchProgram):
    """Computes when it is asked for a result, not when it is timed; then for the last one alone."""

    def iterate(self) -> None:
        self.pending = True
        self._next()
        if getattr(self, "_last", None) is None:
            self._last = self._forward(0) if not self.train else self._step(0)[0]

    def write_result(self, file: Path) -> None:
        self.position -= 1
        super().iterate()
        super().write_result(file)


PROGRAMS: dict[str, Callable[[], TorchProgram]] = {
    "idle": Idle,
    "stored": Stored,
    "stored-by-content": StoredByContent,
    "one-sample": OneSample,
    "stale-input": StaleInput,
    "skipped-update": SkippedUpdate,
    "last-node-missing": LastNodeMissing,
    "lazy": Lazy,
    "honest": TorchProgram,
}


def cheat_clock(tell: Callable[[int], int]) -> None:
    """Let the worker's clock tell other times; the work is done."""
    clock = time.perf_counter_ns
    began = clock()
    time.perf_counter_ns = lambda: tell(clock() - began)  # type: ignore[assignment]


def count_nanoseconds() -> Callable[[int], int]:
    """A clock that moves by a nanosecond whenever it is read."""
    count = itertools.count(1)
    return lambda passed: next(count)


if __name__ == "__main__":
    name = sys.argv[1]
    if name == "half-clock":
        cheat_clock(lambda passed: passed // 2)
    if name == "nanosecond":
        cheat_clock(count_nanoseconds())
    run(PROGRAMS.get(name, TorchProgram))
