"""The worker's side: a workload run by oneDNN, from the lowered graph in the level's cache.

``python -m golow.levels.onednn.program FOLDER`` speaks the worker protocol, for the lowered graph
in that folder; the layouts that it chooses by measuring stay there for the next start. It imports
NumPy, safetensors, msgspec and the binding, and no framework.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import msgspec
import numpy as np
from safetensors.numpy import save_file

from golow.bundle import Bundle
from golow.levels import bundle_arrays
from golow.levels.bundle_arrays import Batch
from golow.levels.onednn import GRAPH, LAYOUTS, tuning, write_whole
from golow.levels.onednn.builder import Builder, Switches
from golow.levels.onednn.execution import Execution
from golow.levels.onednn.library import Engine
from golow.levels.onednn.operators import OPERATORS
from golow.lower.graph import decode_graph
from golow.record import LayerTime
from golow.worker.protocol import LoadReport
from golow.worker.serve import run


class OneDnn:
    """A workload run by direct calls of oneDNN."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    # ------------------------------------------------------------ the protocol's requests

    def load(self, bundle: Path) -> LoadReport:
        """Build the plan, give it the bundle's weights."""
        start = time.perf_counter()
        self.bundle = Bundle(bundle)
        self.workload = self.bundle.workload
        self.train = self.workload.mode == "train"
        self.switches = Switches(self.workload.seed)
        self.engine = Engine()
        self.graph = decode_graph((self._folder / GRAPH).read_bytes())
        self._batches = self._read_batches()
        layouts = tuning.stored(self._folder / LAYOUTS)
        building = time.perf_counter()
        notes = []
        if layouts is None:
            layouts = tuning.choose(self.graph, self._loaded)
            if layouts.clean:
                write_whole(self._folder / LAYOUTS, msgspec.json.encode(layouts))
            else:
                notes.append("layouts were chosen while other processes used the cores")
        built = time.perf_counter()
        self._take(layouts)
        seconds = {
            "build": built - building,
            "load": time.perf_counter() - built + building - start,
        }
        return LoadReport(phases=seconds, notes=tuple(notes))

    def outputs(self, batches: list[int], learning_rate: float, file: Path) -> None:
        """Run the batches from the bundle's weights, random layers off; write the tensors."""
        self._reset()
        self.switches.dropout = False
        self._set_learning_rate(self.execution, learning_rate)
        tensors: dict[str, np.ndarray] = {}
        for step, index in enumerate(batches):
            self._point_at(self.execution, index)
            last = step == len(batches) - 1
            tensors |= {f"{step}/{k}": v for k, v in self._captured(step == 0, last).items()}
        save_file(tensors, file)
        self.switches.dropout = True
        self._reset()

    def iterate(self) -> None:
        """One forward pass or training step on the next batch."""
        self._next_batch()
        self.execution.run()

    def last(self) -> float:
        """The loss, or the first element of the first output."""
        key = ("loss", "loss") if self.train else ("output", "0")
        return float(self.execution.read(self.built.outputs[key][0]).flat[0])

    def allocated_peak(self) -> int | None:
        """Bytes of the arena: all that an iteration uses beyond weights and state."""
        return self.built.plan.sizes["arena"]

    def layers(self, iterations: int) -> tuple[LayerTime, ...]:
        """Every step's time in each of so many iterations."""
        samples = []
        for _ in range(iterations):
            self._next_batch()
            samples.append(self.execution.run_timed())
        steps = self.built.plan.steps
        return tuple(
            LayerTime(
                modules=steps[position].modules,
                phase=steps[position].phase,
                operation=steps[position].operation,
                ns=tuple(sample[index][1] for sample in samples),
            )
            for index, (position, _) in enumerate(samples[0])
        )

    # ------------------------------------------------------------ how it is done

    def _next_batch(self) -> None:
        self._point_at(self.execution, self._position % len(self._batches))
        self._position += 1

    def _take(self, layouts: tuning.Layouts) -> None:
        self.execution = self._loaded(layouts)
        self.built = self.execution.built
        self._reset()

    def _loaded(self, layouts: tuning.Layouts) -> Execution:
        """The plan in these layouts, with the weights, pointed at the first batch."""
        builder = Builder(self.graph, self.engine, layouts.tag, self.switches)
        with bundle_arrays.weights(self.bundle) as read:
            execution = Execution(builder.build(OPERATORS), self.engine, read)
        self._reset_state(execution)
        self._point_at(execution, 0)
        return execution

    def _captured(self, first: bool, last: bool) -> dict[str, np.ndarray]:
        """Run one step; what the check wants of it, taken when it was made, because its memory
        may hold something else a step later."""
        found: dict[str, np.ndarray] = {}
        at_step: dict[int, list[tuple[str, str]]] = {}
        for key, (_, made_at) in self.built.outputs.items():
            if key[0] in ("output", "loss") or (key[0] == "gradient" and first):
                at_step.setdefault(made_at, []).append(key)

        def capture(position: int) -> None:
            for kind, target in at_step.get(position, ()):
                tensor, _ = self.built.outputs[(kind, target)]
                found[f"{kind}/{target}"] = self.execution.read(tensor)

        self.execution.run_watched(capture)
        capture(-1)
        for kind, target in self.built.outputs:
            if kind == "buffer" or (last and kind in ("parameter", "momentum")):
                if kind == "momentum" and not self.workload.optimizer.momentum:
                    continue
                state = self.built.inputs[(kind, target)]
                found[f"{kind}/{target}"] = self.execution.read(state)
        return found

    def _reset(self) -> None:
        """Back to the bundle's weights and to zero momentum."""
        self._position = 0
        self._reset_state(self.execution)

    def _reset_state(self, execution: Execution) -> None:
        with bundle_arrays.weights(self.bundle) as read:
            for (kind, target), tensor in execution.built.inputs.items():
                if self.train and kind in ("parameter", "buffer"):
                    execution.write(tensor, read(kind, target))
        execution.clear_momentum()
        self._set_learning_rate(execution, self.workload.optimizer.learning_rate)

    def _set_learning_rate(self, execution: Execution, rate: float) -> None:
        tensor = execution.built.inputs.get(("learning_rate", ""))
        if tensor is not None:  # with its sign turned: see operators/update.py
            execution.write(tensor, np.array([-rate], np.float32))

    def _point_at(self, execution: Execution, index: int) -> None:
        for (kind, target), array in self._batches[index].items():
            execution.point_input(kind, target, array)

    def _read_batches(self) -> list[Batch]:
        found = bundle_arrays.batches(self.bundle, self.workload.batches)
        return [{key: _aligned(array) for key, array in batch.items()} for batch in found]


def _aligned(array: np.ndarray) -> np.ndarray:
    """A copy whose first byte starts a cache line."""
    space = np.empty(array.nbytes + 64, np.uint8)
    start = -space.ctypes.data % 64
    copy = space[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


if __name__ == "__main__":
    run(lambda: OneDnn(Path(sys.argv[1])))
