"""The worker's side: a workload run by cuDNN, cuBLASLt and own kernels, from the lowered graph in
the level's cache.

``python -m golow.levels.cudnn.program FOLDER [autotune]`` speaks the worker protocol, for the
lowered graph in that folder. It imports NumPy, safetensors, msgspec and NVIDIA's bindings, and no
framework.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from golow.bundle import Bundle
from golow.levels import bundle_arrays
from golow.levels.cudnn import GRAPH
from golow.levels.cudnn.builder import Builder
from golow.levels.cudnn.device import Gpu, Region
from golow.levels.cudnn.engines import Engines
from golow.levels.cudnn.execution import Execution
from golow.levels.cudnn.kernels.dropout import CONTROL
from golow.levels.cudnn.kernels.update import SCALER
from golow.levels.cudnn.operators import OPERATORS
from golow.levels.cudnn.operators.update import finish
from golow.levels.cudnn.precision import TYPES
from golow.lower.graph import decode_graph
from golow.record import LayerTime
from golow.worker.protocol import LoadReport
from golow.worker.serve import run


class CuDnn:
    """A workload run by direct calls of NVIDIA's libraries."""

    def __init__(self, folder: Path, autotune: bool) -> None:
        self._folder, self._autotune = folder, autotune

    # ------------------------------------------------------------ the protocol's requests

    def load(self, bundle: Path) -> LoadReport:
        """Build the plan, give it the bundle's weights, capture the CUDA graph."""
        start = time.perf_counter()
        self.bundle = Bundle(bundle)
        self.workload = self.bundle.workload
        self.train = self.workload.mode == "train"
        graph = decode_graph((self._folder / GRAPH).read_bytes())
        self.gpu = Gpu(self._folder.parent / "kernels")
        engines = Engines(self.gpu, self._folder.parent / "engines", self._autotune)
        building = time.perf_counter()
        types = TYPES[self.workload.precision]
        built = Builder(graph, engines, types, self.workload.batches).build(OPERATORS, finish)
        batches = bundle_arrays.batches(self.bundle, self.workload.batches)
        sources = {item.value.name: item for item in graph.inputs}
        with bundle_arrays.weights(self.bundle) as read:
            self.execution = Execution(built, self.gpu, sources, batches, read)
        self._reset()
        self.iterate()  # which compiles what is left and captures the graph
        self.gpu.synchronize()
        built_in = time.perf_counter() - building
        self._reset()
        # Where every engine came from the cache, all of it is loading.
        build = built_in if engines.built else 0.0
        phases = {"build": build, "load": time.perf_counter() - start - build}
        return LoadReport(phases=phases)

    def outputs(self, batches: list[int], learning_rate: float, file: Path) -> None:
        """Run the batches from the bundle's weights, random layers off; write the tensors."""
        self._reset()
        self._set_dropout(active=False)
        self._set_learning_rate(learning_rate)
        tensors: dict[str, np.ndarray] = {}
        for step, index in enumerate(batches):
            self.execution.run(index)
            last = step == len(batches) - 1
            tensors |= {f"{step}/{k}": v for k, v in self._results(step == 0, last).items()}
        save_file(tensors, file)
        self._reset()

    def iterate(self) -> None:
        """Enqueue one forward pass or training step on the next batch."""
        self.execution.run(self._position % self.workload.batches)
        self._position += 1

    def last(self) -> float:
        """The loss, or the first element of the first output."""
        key = ("loss", "loss") if self.train else ("output", "0")
        return float(self.execution.read(self.execution.built.outputs[key]).flat[0])

    def allocated_peak(self) -> int | None:
        """Bytes of the arena and the gradients: all that an iteration uses beyond what it keeps."""
        return self.execution.working_bytes

    def layers(self, iterations: int) -> tuple[LayerTime, ...]:
        """Every step's time in each of so many iterations, by the GPU's clock."""
        samples = []
        for _ in range(iterations):
            samples.append(self.execution.run_timed(self._position % self.workload.batches))
            self._position += 1
        return tuple(
            LayerTime(
                modules=step.modules,
                phase=step.phase,
                operation=step.operation,
                ns=tuple(sample[index] for sample in samples),
            )
            for index, step in enumerate(self.execution.plan.steps)
        )

    def stopwatch(self, iterations: int) -> Stopwatch:
        """What times so many iterations on the device."""
        return Stopwatch(self.gpu, iterations)

    # ------------------------------------------------------------ how it is done

    def _results(self, first: bool, last: bool) -> dict[str, np.ndarray]:
        """What the check wants of the step that just ran."""
        found: dict[str, np.ndarray] = {}
        for (kind, target), tensor in self.execution.built.outputs.items():
            wanted = kind in ("output", "loss", "buffer") or (kind == "gradient" and first)
            if kind == "momentum":
                wanted = last and self.workload.optimizer.momentum != 0
            if wanted or (last and kind == "parameter"):
                found[f"{kind}/{target}"] = self.execution.read(tensor)
                if kind == "gradient":
                    found[f"{kind}/{target}"] /= self._loss_scale
        return found

    def _reset(self) -> None:
        """Back to the bundle's weights and to zero momentum."""
        self._position = 0
        if not self.train:
            return
        execution = self.execution
        with bundle_arrays.weights(self.bundle) as read:
            for (kind, target), tensor in execution.built.inputs.items():
                if kind in ("parameter", "buffer"):
                    execution.write(tensor, read(kind, target))
        execution.renew_copies()
        execution.clear_momentum()
        self._loss_scale = FIRST_SCALE if TYPES[self.workload.precision].scaled else 1.0
        execution.write_cell("loss_scale", np.array((self._loss_scale, 0, 0), SCALER))
        self._set_dropout(active=True)
        self._set_learning_rate(self.workload.optimizer.learning_rate)

    def _set_learning_rate(self, rate: float) -> None:
        tensor = self.execution.built.inputs.get(("learning_rate", ""))
        if tensor is not None:
            self.execution.write(tensor, np.array(rate, np.float32))

    def _set_dropout(self, active: bool) -> None:
        for name in self.execution.built.cells:
            if name.startswith("dropout"):
                probability = float(name.split()[1]) if active else 0.0
                content = np.array((self.workload.seed, 0, probability), CONTROL)
                self.execution.write_cell(name, content)


class Stopwatch:
    """Times iterations between pairs of events."""

    def __init__(self, gpu: Gpu, iterations: int) -> None:
        self._gpu = gpu
        self._pairs = [(gpu.event(), gpu.event()) for _ in range(iterations)]
        self._flushed: Region | None = None

    def flush(self) -> None:
        """Enqueue the emptying of the L2."""
        size = 2 * self._gpu.cache_bytes
        self._flushed = self._flushed or Region(size)
        self._gpu.fill(self._flushed.address, size)

    def start(self, index: int) -> None:
        """Enqueue the beginning of an iteration."""
        self._gpu.record(self._pairs[index][0])

    def stop(self, index: int) -> None:
        """Enqueue its end."""
        self._gpu.record(self._pairs[index][1])

    def nanoseconds(self) -> tuple[int, ...]:
        """Of each iteration, when all have happened."""
        self._gpu.synchronize()
        return tuple(self._gpu.elapsed_ns(*pair) for pair in self._pairs)


FIRST_SCALE = 65536.0  # torch.amp.GradScaler's

if __name__ == "__main__":
    run(lambda: CuDnn(Path(sys.argv[1]), "autotune" in sys.argv[2:]))
