"""The worker of the `jax` level: runs the source that the level wrote into its cache.

``python -m golow.levels.traced.jax.program VARIANT FOLDER [LAST]`` speaks the worker protocol.
VARIANT is ``plain`` or ``freezing``. FOLDER has source and graph, LAST those of an epoch's smaller
last batch. It imports JAX, but not PyTorch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from golow.levels.direct.bundle_arrays import Read
from golow.levels.direct.plan_program import Key
from golow.levels.traced import program as sources
from golow.levels.traced.jax.execution import Execution
from golow.levels.traced.jax.freezing import Frozen
from golow.levels.traced.jax.level import FREEZING
from golow.levels.traced.jax.step import scales_loss
from golow.levels.traced.jax.weighing import compiled_weighing
from golow.levels.traced.program import SourceProgram
from golow.lower.ir.graph import Graph
from golow.records.workload import Workload
from golow.worker.cores import keep_to
from golow.worker.loss_scale import FIRST_SCALE, settle_loss_scale
from golow.worker.marking import WINDOWS, marked_part, values_of
from golow.worker.protocol import LoadReport, Marks
from golow.worker.serve import run

if TYPE_CHECKING:
    from golow.levels.traced.jax.stopwatch import Stopwatch


class Jax(SourceProgram):
    """A workload run by JAX; on a GPU iterations are enqueued, and events time them."""

    level = "jax"
    execution: Execution

    _first_scale = FIRST_SCALE

    def __init__(self, variant: str, *folders: Path) -> None:
        super().__init__(*folders)
        self._executes = Frozen if variant == FREEZING else Execution

    def load(self, bundle: Path) -> LoadReport:
        """Import the source, put the weights on the device and compile. In fp16, find a loss scale
        that suits all batches."""
        self._first_scale = FIRST_SCALE
        report = super().load(bundle)
        if scales_loss(self.workload):
            self.execution.set_rate(0.0)
            self._first_scale = settle_loss_scale(
                self.iterate, lambda: self.execution.scale, self.workload.batches
            )
            self.reset()
        return report

    def opened(self, folder: Path, graph: Graph, workload: Workload) -> Execution:
        """Return what runs a program, without its weights."""
        self._aside: list[Any] = []
        self._weigh: Any = None
        self._rehearsed = False
        execution = self._executes(folder, graph, workload)
        if scales_loss(workload):
            execution.set_scale(self._first_scale, 0)
        return execution

    @property
    def _weighs(self) -> bool:
        return self.workload.device == "cuda" and not self.train

    def stopwatch(self, iterations: int) -> Stopwatch | None:
        """Return events for that many iterations; None on a CPU."""
        if self.workload.device == "cpu":
            return None
        from golow.levels.traced.jax.stopwatch import Stopwatch

        return Stopwatch(self.execution, iterations)

    def seek(self, iteration: int) -> None:
        """Let the next iteration be that one."""
        super().seek(iteration)
        self._rehearse()

    def keep(self) -> None:
        """Keep the loss, or the weighted sum of the last outputs; on a GPU that is enqueued."""
        if self.workload.device == "cpu":
            super().keep()
            return
        found = self.execution.found
        if self._weighs:
            self._aside.append(self._weigh(tuple(found.values())))
            self.execution.enqueued.append(self._aside[-1])
        else:
            self._aside.append(found["loss", "loss"])

    def kept(self) -> list[float]:
        """Tensors kept since the last call."""
        if self.workload.device == "cpu":
            return super().kept()
        aside, self._aside = self._aside, []
        return [float(each) for each in aside]

    @contextmanager
    def marked(self, marks: Marks) -> Iterator[Callable[[int], None]]:
        """A function that makes the next iteration's batch another array, with values in the marked
        part; on a GPU it enqueues that."""
        given, name = list(self._batches), f"input/{marks.input}"
        places, row = self._places(marks.input, marks), self._row(marks)

        def write(start: int) -> None:
            index = self._position % len(given)
            changed = _written(given[index][name], places, row, start)
            self._batches[index] = {**given[index], name: changed}
            self.execution.enqueued.append(changed)

        try:
            yield write
        finally:
            self._batches = given

    def collect(self, key: Key, count: int) -> Collector:
        """Return what collects this result of runs, where it is."""
        self._rehearse()
        return Collector(key)

    def _rehearse(self) -> None:
        """On a GPU, compile what marks inputs and weighs outputs, before the first block of a race:
        one that compiles would not be filled by the times of its iterations."""
        if self._rehearsed or self.workload.device == "cpu":
            return
        self._rehearsed = True
        if self._weighs:
            self._weigh = compiled_weighing(self.execution.outputs)
        for index in range(len(self.workload.inputs)):
            marks = Marks(input=index, start=0, length=1, low=0, high=0, whole=False, seed=0)
            batch = self._batches[0][f"input/{index}"]
            _written(batch, self._places(index, marks), self._row(marks), 0)

    def _places(self, index: int, marks: Marks) -> Any:
        """Where in a window each element of a batch gets its value from, -1 for one that gets
        none."""
        places = np.full_like(self._arrays[0]["input", str(index)], -1, np.int32)
        part = marked_part(places, marks)
        part[...] = np.arange(part.size, dtype=np.int32).reshape(part.shape)
        return self.execution.put(self.execution.arranged(f"input/{index}", places))

    def _row(self, marks: Marks) -> Any:
        """The row of values on the device, in the input's type. It has room for an eighth of a
        sample, however many elements are marked, so that one compiled program serves."""
        array = self._arrays[0]["input", str(marks.input)]
        values = values_of(marks, len(array)).astype(array.dtype)
        room = max(values.size, WINDOWS + len(array) * -(-array[0].size // 8))
        return self.execution.put(np.pad(values, (0, room - values.size)))

    def derive(self, read: Read) -> None:
        """Take other weights."""
        super().derive(read)
        self.execution.wait()

    def scaler(self) -> dict[str, np.ndarray]:
        """Return loss scale and good steps; empty without loss scaling."""
        if not scales_loss(self.workload):
            return {}
        state = self.execution.state
        found = {name: np.asarray(state[name]).reshape(1) for name in ("scale", "good_steps")}
        return {f"scaler/{name}": array for name, array in found.items()}

    def set_scaler(self, scaler: dict[str, np.ndarray]) -> None:
        """Continue with this loss scale; if it is empty, with the initial one."""
        if not scales_loss(self.workload):
            return
        scale, good = self._first_scale, 0
        if scaler:
            scale, good = (scaler[f"scaler/{part}"][0] for part in ("scale", "good_steps"))
        self.execution.set_scale(float(scale), int(good))

    def state_changed(self) -> None:
        """Wait until the state is on the device."""
        self.execution.wait()


class Collector(sources.Collector):
    """Collects one result of several runs; it is read at the end, so that no run waits."""

    def __init__(self, key: Key) -> None:
        super().__init__(key)
        self._found: list[tuple[Execution, Any]] = []

    def take(self, execution: Execution) -> None:
        """Keep the result of this execution's last run."""
        self._found.append((execution, execution.found[self._key]))

    def arrays(self) -> list[np.ndarray]:
        """Return all results."""
        return [execution.taken(self._key, found) for execution, found in self._found]


def _with_values(array: Any, places: Any, row: Any, start: int) -> Any:
    """The array with the row's values from start on in these places."""
    return jnp.where(places < 0, array, row[jnp.maximum(places, 0) + start].astype(array.dtype))


_written = jax.jit(_with_values)


if __name__ == "__main__":
    if os.environ["JAX_PLATFORMS"] == "cpu":
        # XLA computes in its pool and, at times, in the thread that waits for it, so that a pool
        # of n threads can use n + 1 cores.
        keep_to(int(os.environ["NPROC"]))
    run(lambda: Jax(sys.argv[1], *map(Path, sys.argv[2:])))
