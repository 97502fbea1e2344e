"""Workers that cheat while they are timed, and nowhere else.

``python tests/support/plants/cheats.py NAME`` serves eager, but for the cheat of that name in the
timed loop.
"""

from __future__ import annotations

import itertools
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from training_cheats import (
    FirstSteps,
    NoBackward,
    OnlyChallenged,
    ReadsReference,
    Stalling,
    StopsEager,
)

from golow.levels.torch.program import TorchProgram
from golow.worker.marking import values_of, window
from golow.worker.protocol import LoadReport, Marks
from golow.worker.serve import run
from golow.worker.served_program import Stopwatch


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


class Table(TorchProgram):
    """Has computed, while it loaded, what each batch gives if all marked elements have one value,
    and looks up their mean."""

    def load(self, bundle: Path) -> LoadReport:
        report = super().load(bundle)
        batches = [inputs[0] for inputs in self.inputs]
        self.grid = np.linspace(*map(float, torch.cat(batches).aminmax()), 200)
        self.table = [[self.sum_with(batch, value) for value in self.grid] for batch in batches]
        return report

    def sum_with(self, batch: Tensor, value: float) -> float:
        changed = batch.clone()
        samples = changed.view(len(batch), -1)
        size = samples.shape[1]
        length = math.ceil(size / 8)
        samples.narrow(1, (size - length) // 2, length).fill_(value)
        self._last = self._infer((changed,))
        return float(self._weighted_sum())

    @contextmanager
    def marked(self, marks: Marks) -> Iterator[Callable[[int], None]]:
        rows = len(self.inputs[0][0])
        row, size = values_of(marks, rows), rows * marks.length

        def look(start: int) -> None:
            self.mean = float(row[start : start + size].mean())

        yield look
        self.mean = None

    mean: float | None = None

    def iterate(self) -> None:
        if self.mean is None:
            super().iterate()
        else:
            self.batch = self._next()

    def keep(self) -> None:
        if self.mean is None:
            super().keep()
        else:
            found = np.interp(self.mean, self.grid, self.table[self.batch])
            self._results.append(torch.tensor(found))


class Ahead(TorchProgram):
    """Computes the next 64 iterations of a block as one large batch, and then nothing. Where the
    marks depend on a result that it does not have, it takes the most likely ones."""

    marks: Marks | None = None

    def seek(self, iteration: int) -> None:
        super().seek(iteration)
        self.ready: dict[int, Any] = {}

    @contextmanager
    def marked(self, marks: Marks) -> Iterator[Callable[[int], None]]:
        self.marks = marks
        yield lambda start: None
        self.marks = None

    def iterate(self) -> None:
        if self.marks is None:
            super().iterate()
            return
        if self.position not in self.ready:
            numbers = range(self.position, self.position + 64)
            outputs = self._infer((torch.cat([self.given(n, self.marks) for n in numbers]),))
            self.ready = dict(zip(numbers, outputs.split(len(self.inputs[0][0])), strict=True))
        self._last = self.ready[self.position]
        self._next()

    def given(self, number: int, marks: Marks) -> Tensor:
        changed = self.inputs[number % len(self.inputs)][0].clone()
        part = changed.view(len(changed), -1).narrow(1, marks.start, marks.length)
        start = window(marks, number, 0.0)
        values = values_of(marks, len(changed))[start : start + part.numel()]
        part.copy_(torch.from_numpy(values).view(part.shape))
        return changed


class Background(TorchProgram):
    """An iteration begins its work in a thread, and returns before the thread does; who keeps its
    result waits for it."""

    thread: threading.Thread | None = None

    def iterate(self) -> None:
        inputs = tuple(tensor.clone() for tensor in self.inputs[self._next()])
        self.wait()
        self.thread = threading.Thread(target=self.work, args=(inputs,))
        self.thread.start()

    def work(self, inputs: tuple[Tensor, ...]) -> None:
        # On busy cores it would have the core first, and the iteration's time would be true.
        time.sleep(200e-6)
        self._last = self._infer(inputs)

    def wait(self) -> None:
        if self.thread is not None:
            self.thread.join()

    def keep(self) -> None:
        self.wait()
        super().keep()

    def last(self) -> float:
        self.wait()
        return super().last()

    def write_result(self, file: Path) -> None:
        self.wait()
        super().write_result(file)


class Device(TorchProgram):
    """Has no device, and times one all the same: the host's time is a third of what passed."""

    def stopwatch(self, iterations: int) -> Stopwatch:
        return HostStopwatch(iterations)


class HostStopwatch:
    """The honest clock of the host, as a device's."""

    def __init__(self, iterations: int) -> None:
        self.points = [[0, 0] for _ in range(iterations)]

    def flush(self) -> None:
        """There is no cache."""

    def start(self, iteration: int) -> None:
        self.points[iteration][0] = time.monotonic_ns()

    def stop(self, iteration: int) -> None:
        self.points[iteration][1] = time.monotonic_ns()

    def nanoseconds(self) -> tuple[int, ...]:
        return tuple(end - begin for begin, end in self.points)


PROGRAMS: dict[str, Callable[[], TorchProgram]] = {
    "idle": Idle,
    "stored": Stored,
    "stored-by-content": StoredByContent,
    "one-sample": OneSample,
    "stale-input": StaleInput,
    "skipped-update": SkippedUpdate,
    "last-node-missing": LastNodeMissing,
    "lazy": Lazy,
    "table": Table,
    "ahead": Ahead,
    "background": Background,
    "device": Device,
    "first-steps": FirstSteps,
    "stalling": Stalling,
    "stops-eager": StopsEager,
    "only-challenged": OnlyChallenged,
    "no-backward": NoBackward,
    "reads-reference": ReadsReference,
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
    if name == "device":
        cheat_clock(lambda passed: passed // 3)
    if name == "half-clock":
        cheat_clock(lambda passed: passed // 2)
    if name == "nanosecond":
        cheat_clock(count_nanoseconds())
    run(PROGRAMS.get(name, TorchProgram))
