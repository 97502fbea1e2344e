"""The levels of a GPU with a fault that is in their timed iterations alone, each by its own
mechanism, and workers that cheat the GPU's clock.

``python tests/support/plants/planted_gpu_levels.py NAME CACHE`` serves the level that the name
begins with. What it answers to `outputs` is right.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from golow.levels.torch import batch_sources
from golow.levels.torch import device as torch_device
from golow.levels.torch.batches import Batch
from golow.levels.torch.graph import Captured, CapturedProgram
from golow.levels.torch.program import TorchProgram
from golow.worker.protocol import LoadReport, Marks
from golow.worker.serve import run
from golow.worker.served_program import Stopwatch
from golow.workload.bundle import Bundle

# ---------------------------------------------------------------- CUDA graphs of eager's step


class Planted(CapturedProgram):
    """The timed iterations replay another graph than the check's. Every second one, or all."""

    planting = False
    whole: dict[int, Captured]
    faulty: dict[int, Captured]

    def load(self, bundle: Path) -> LoadReport:
        report = super().load(bundle)
        self.whole = self._graphs
        gradients = [parameter.grad for parameter in self.module.parameters()]
        self.planting = True
        self._capture()
        self.planting = False
        for parameter, gradient in zip(self.module.parameters(), gradients, strict=True):
            parameter.grad = gradient
        self.faulty, self._graphs = self._graphs, self.whole
        self._reset()
        return report

    def iterate(self) -> None:
        self._graphs = self.faulty
        super().iterate()
        self._graphs = self.whole


class LastNodeMissing(Planted):
    """The captured graph lacks its last product; what it gives was there before."""

    def _iterate_on(self, batch: Any) -> Any:
        last = [m for m in self.module.modules() if isinstance(m, nn.Linear)][-1]
        if not self.planting:
            return super()._iterate_on(batch)
        old = torch.zeros(len(batch.inputs[0]), last.out_features, device=self.device)
        right = last.forward
        last.forward = lambda given: old + 0 * given.sum()  # type: ignore[method-assign]
        try:
            return super()._iterate_on(batch)
        finally:
            last.forward = right  # type: ignore[method-assign]


class StaleBatch(Planted):
    """From the second iteration on no batch is copied to where the graph reads it."""

    def _infer(self, inputs: tuple[Tensor, ...]) -> Any:
        if self._graphs is not self.__dict__.get("faulty") or self.position == 1:
            return super()._infer(inputs)
        captured = self._graph_for(inputs)
        captured.graph.replay()
        return captured.result


class SkippedUpdate(Planted):
    """Every second step replays a graph without the update."""

    def iterate(self) -> None:
        if self.position % 2:
            super().iterate()
        else:
            CapturedProgram.iterate(self)

    def _update(self, optimizer: torch.optim.SGD) -> None:
        if not self.planting:
            super()._update(optimizer)


# ---------------------------------------------------------------- cuDNN


def cudnn_program(fault: str, cache: Path) -> Any:
    """The level's program with a plan that is captured otherwise for what is timed."""
    from golow.levels.direct.cudnn.level import prepare
    from golow.levels.direct.cudnn.run.program import CuDnn

    class PlantedCuDnn(CuDnn):
        def __init__(self) -> None:
            """The folders are known once the bundle is."""

        def load(self, bundle: Path) -> LoadReport:
            launch = prepare(Bundle(bundle), "", cache)
            CuDnn.__init__(self, *map(Path, launch.command[4:]))
            report = super().load(bundle)
            self.loaded, self.faulty = True, self.graph_without()
            return report

        def graph_without(self) -> Any:
            """The captured graph without its last step, or without its updates."""
            execution = self.execution
            whole = execution.built
            steps = whole.plan.steps
            calls = execution._calls
            kept = {p: call for p, call in calls.items() if steps[p].phase != "update"}
            if fault == "last-step-missing":
                kept = dict(list(calls.items())[:-1])
            execution._calls = kept
            joins, execution._joins = execution._joins, [()] * len(steps)
            graph = self.gpu.capture(execution.enqueue)
            execution._calls, execution._joins = calls, joins
            return graph

        def iterate(self) -> None:
            if not self.__dict__.get("loaded"):
                super().iterate()
                return
            if fault == "stale-input":
                self._next()
                self.run_batch(0)
                return
            right = self.execution._graph
            if fault == "last-step-missing" or self._position % 2:
                self.execution._graph = self.faulty
            super().iterate()
            self.execution._graph = right

    return PlantedCuDnn


# ---------------------------------------------------------------- cheats of the GPU's clock


class OtherStream(TorchProgram):
    """The work is on a stream that the events are not on, so that they are next to one another. It
    is waited for while the next batch is marked, so that the host never waits between the events
    for room in the stream's queue."""

    def load(self, bundle: Path) -> LoadReport:
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        return super().load(bundle)

    def iterate(self) -> None:
        with torch.cuda.stream(self.stream):
            super().iterate()

    @contextmanager
    def marked(self, marks: Marks) -> Iterator[Callable[[int], None]]:
        with super().marked(marks) as write:

            def on_the_stream(start: int) -> None:
                self.stream.synchronize()
                with torch.cuda.stream(self.stream):
                    write(start)

            torch.cuda.synchronize()
            yield on_the_stream
            torch.cuda.synchronize()

    def keep(self) -> None:
        with torch.cuda.stream(self.stream):
            super().keep()

    def last(self) -> float:
        torch.cuda.synchronize()
        return super().last()

    def kept(self) -> list[float]:
        torch.cuda.synchronize()
        return super().kept()


class HalfClock(TorchProgram):
    """The events are where they belong, and half of what is between them is told."""

    def stopwatch(self, iterations: int) -> Stopwatch | None:
        class Half(torch_device.EventStopwatch):
            def nanoseconds(self) -> tuple[int, ...]:
                return tuple(ns // 2 for ns in super().nanoseconds())

        return Half(iterations)


class HostStopwatch:
    """The times of a host that does the work, given out as the GPU's."""

    def __init__(self, iterations: int) -> None:
        self.times = [(0, 0)] * iterations

    def flush(self) -> None:
        """There is nothing to flush."""

    def start(self, index: int) -> None:
        self.times[index] = time.perf_counter_ns(), 0

    def stop(self, index: int) -> None:
        self.times[index] = self.times[index][0], time.perf_counter_ns()

    def nanoseconds(self) -> tuple[int, ...]:
        return tuple(stop - start for start, stop in self.times)


class OnHost(TorchProgram):
    """The work is done, by the CPU."""

    def _read(self, bundle: Bundle) -> None:
        super()._read(bundle)
        self.device = torch.device("cpu")
        self.module.to(self.device)
        self.inputs = self._batches("input", self.device)
        batches = [Batch(inputs, ()) for inputs in self.inputs]
        self.source = batch_sources.source(None, batches, self.device)

    def stopwatch(self, iterations: int) -> Stopwatch | None:
        return HostStopwatch(iterations)


PROGRAMS: dict[str, Callable[[], Any]] = {
    "cudagraph-last-node-missing": LastNodeMissing,
    "cudagraph-stale-input": StaleBatch,
    "cudagraph-skipped-update": SkippedUpdate,
    "other-stream": OtherStream,
    "half-clock": HalfClock,
    "on-host": OnHost,
}


if __name__ == "__main__":
    name, cache = sys.argv[1], Path(sys.argv[2])
    if name.startswith("cudnn-"):
        run(cudnn_program(name.removeprefix("cudnn-"), cache))
    else:
        run(PROGRAMS[name])
