"""The worker's part of the levels outside PyTorch: serves an exported model on numpy arrays.

Nothing here imports torch: a worker must not hold it in memory if its runtime does not need it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

from golow.levels.choices.chooser import Chooser
from golow.levels.peers.exported_program import VARIABLE, read_report
from golow.records.errors import GolowError
from golow.records.workload import Workload
from golow.worker.marking import marked_arrays
from golow.worker.protocol import LoadReport, Marks
from golow.worker.results import weighted_sum
from golow.workload.bundle import Bundle

Array = npt.NDArray[Any]


class ArrayProgram(Chooser):
    """A workload run by a runtime on numpy arrays; a level overrides the four methods below.

    The arrays of a batch stay where they are until the next load, as the tensors of `TorchProgram`
    do, so that a runtime can be bound to them once. settings: what the user chose otherwise than
    the level does, by the runtime's names; None removes a setting of the level's.
    """

    workload: Workload

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.settings: dict[str, Any] = {}
        self.position = self._last = 0
        self._kept: list[float] = []

    def open(self, folder: Path, workload: Workload) -> None:
        """Load the exported model in that folder, with the workload's threads, in float32."""
        raise NotImplementedError

    def bind(self, index: int, inputs: list[Array]) -> None:
        """Prepare to run on these inputs, which are batch ``index``."""
        raise NotImplementedError

    def run(self, index: int) -> None:
        """Run batch ``index``; returns when it is done."""
        raise NotImplementedError

    def results(self, index: int) -> list[Array]:
        """The outputs of the last run of batch ``index``, in tree order."""
        raise NotImplementedError

    # ------------------------------------------------------------ in the caller's process

    @property
    def opened(self) -> Any:
        """The runtime's own object for the model."""
        raise NotImplementedError

    def settings_for(self, contexts: int, threads: int) -> dict[str, Any]:
        """Settings with which this many calls run at a time, each with this many threads."""
        raise NotImplementedError

    def answer(self, inputs: list[Array], context: int = 0) -> list[Array]:
        """Run on these arrays; the results are the caller's own. context: calls of others may run
        meanwhile."""
        self.bind(context, inputs)
        self.run(context)
        return [np.array(result, order="C") for result in self.results(context)]

    # ------------------------------------------------------------ the protocol's requests

    def load(self, bundle: Path) -> LoadReport:
        """Open the exported model and bind it to the bundle's batches."""
        start = time.perf_counter()
        given = Bundle(bundle)
        self.workload = given.workload
        self.notes = []
        self.open(find_export(self.workload), self.workload)
        batches = load_file(given.file("batches.safetensors"))
        # Kept: the runtimes are bound to the memory of these arrays and do not own it.
        self.inputs = [
            [batches[f"{index}/input/{i}"].copy() for i in range(len(self.workload.inputs))]
            for index in range(self.workload.batches)
        ]
        for index, inputs in enumerate(self.inputs):
            self.bind(index, inputs)
        self.position = 0
        return LoadReport(phases={"load": time.perf_counter() - start}, notes=tuple(self.notes))

    def outputs(self, batches: list[int], learning_rate: float, file: Path) -> None:
        """Run the batches and write their outputs; there is no state to reset."""
        tensors: dict[str, Array] = {}
        for step, index in enumerate(batches):
            self.run(self._check_index(index))
            for position, result in enumerate(self.results(index)):
                tensors[f"{step}/output/{position}"] = np.array(result, order="C")
        save_file(tensors, file)
        self.position = 0

    def iterate(self) -> None:
        """One forward pass on the next batch."""
        index = self.position % len(self.inputs)
        self.position += 1
        self._last = index
        self.run(index)

    def last(self) -> float:
        """The first element of the first output."""
        return float(self.results(self._last)[0].flat[0])

    def reset(self, learning_rate: float) -> None:
        """There is no state to go back from."""

    def seek(self, iteration: int) -> None:
        """Let the next iteration be that one."""
        self.position = iteration

    def marked(self, marks: Marks) -> AbstractContextManager[Callable[[int], None]]:
        """Write marks into the arrays that the runtime is bound to."""
        return marked_arrays(self.inputs, marks, lambda: self.position)

    def keep(self) -> None:
        """Keep the weighted sum of the last outputs."""
        self._kept.append(weighted_sum(self.results(self._last)))

    def kept(self) -> list[float]:
        """Tensors kept since the last call."""
        kept, self._kept = self._kept, []
        return kept

    def write_result(self, file: Path) -> None:
        """Write the outputs of the last iteration."""
        results = enumerate(self.results(self._last))
        save_file({f"output/{i}": np.array(result, order="C") for i, result in results}, file)

    def allocated_peak(self) -> int | None:
        """None of the runtimes tells Python what its allocator holds."""
        return None

    def _check_index(self, index: int) -> int:
        if not 0 <= index < len(self.inputs):
            raise GolowError(f"there is no batch {index}; the bundle has {len(self.inputs)}")
        return index


def find_export(workload: Workload) -> Path:
    """The folder that the parent has named; it must hold the export of this workload."""
    folder = Path(os.environ.get(VARIABLE, ""))
    report = read_report(folder)
    if not os.environ.get(VARIABLE) or report is None:
        raise GolowError(f"{VARIABLE} names no exported model")
    if report.digest != workload.digest:
        raise GolowError("the model was exported for a different workload from the bundle's")
    return folder
