"""Checks the operations of a direct level's plan one by one, with the values that its worker
returns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Self

import msgspec
import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from golow.check.hard_step_values import hard_step_values
from golow.check.rounding import FP16, Rounding
from golow.check.step_rule import judged, summary
from golow.check.step_values import step_values
from golow.lower.analysis.hard_values import hard_values
from golow.lower.ir.graph import Graph, GraphInput, decode_graph
from golow.records.comparison import StepError, StepsCheck
from golow.records.workload import KEPT
from golow.worker.client import Worker
from golow.worker.protocol import GRAPH_OF_VALUES, StoredValue, ValuesReport
from golow.workload.bundle import Bundle
from golow.workload.trial import give_back_memory

WINDOW_BYTES = 1 << 30
"""Bytes of values that a worker writes at once."""
OF_JUDGING, SPARE_BYTES = 8, 2 << 30
"""On a GPU: copies in float64 that judging a value takes, and bytes left for everything else."""
NUMPY_TYPES = frozenset(("float32", "float64", "int32", "int64", "int8", "uint8", "bool"))


def verify_steps(
    worker: Worker, bundle: Bundle, learning_rate: float, working: Rounding, folder: Path
) -> StepsCheck:
    """Judge every operation of one iteration on the first batch, from the bundle's weights, on the
    workload's device. Raises `Unsupported` for a worker without a plan, and what asking a worker
    raises."""
    try:
        return summary(step_errors(worker, bundle, learning_rate, working, folder))
    finally:
        give_back_memory(bundle.workload.device)


def step_errors(
    worker: Worker, bundle: Bundle, learning_rate: float, working: Rounding, folder: Path
) -> Iterator[StepError]:
    """Yield the error of each result, in the order in which they are made; then those of results
    from hard values."""
    device = torch.device(bundle.workload.device)
    with _HandedOver(worker, learning_rate, folder, device) as values:
        graph = values.graph
        inputs = {
            name: placed(item, device) for name, item in _inputs(bundle, graph, learning_rate)
        }
        for value in step_values(graph, inputs, values):
            yield judged(value, working, values.stored[value.name].held)
    if working is FP16 or not hard_values(graph):  # its gradients overflow at small variances
        return
    with _HandedOver(worker, learning_rate, folder, device, hard=True) as values:
        for value, words in hard_step_values(graph, inputs, values):
            error = judged(value, working, values.stored[value.name].held)
            yield msgspec.structs.replace(error, hard=words)


class _HandedOver:
    """The level's values, a window of nodes at a time. Later windows are requested when they are
    needed, in the memory of the earlier ones. hard: of operations that are given hard values."""

    def __init__(
        self,
        worker: Worker,
        learning_rate: float,
        folder: Path,
        device: torch.device,
        hard: bool = False,
    ) -> None:
        self._device = device
        self._worker, self._rate, self._hard = worker, learning_rate, hard
        self._file = folder / "values"
        self._graph = folder / f"{self._file.name}{GRAPH_OF_VALUES}"
        self.stored: dict[str, StoredValue] = {}
        self.hard: tuple[str, ...] = ()
        self._replaced: dict[str, StoredValue] = {}
        self._following: int | None = 0
        self._take()
        self.graph: Graph = decode_graph(self._graph.read_bytes())

    def __call__(self, position: int, name: str) -> Tensor | None:
        """The value of that name, of the node at that position; in the memory of the window."""
        while self._following is not None and position >= self._following:
            self._take()
        place = self.stored.get(name)
        return None if place is None else self._tensor(name, place)

    def read_later(self, position: int, name: str) -> Tensor | None:
        """The value as later operations read it."""
        made = self(position, name)
        place = self._replaced.get(name)
        return made if place is None else self._tensor(name, place)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._file.unlink(missing_ok=True)
        self._graph.unlink(missing_ok=True)

    def _take(self) -> None:
        first = self._following or 0
        report: ValuesReport = self._worker.values(
            0, self._rate, first, WINDOW_BYTES, self._file, self._hard
        )
        self.stored |= report.stored
        self._replaced |= report.replaced
        self.hard = report.hard
        self._following = report.following
        self._bytes = np.memmap(self._file, np.uint8, "c")

    def _tensor(self, name: str, place: StoredValue) -> Tensor:
        try:
            if place.dtype not in NUMPY_TYPES:
                raise ValueError(f"a type {place.dtype!r}")
            array = np.ndarray(
                tuple(place.shape[axis] for axis in place.order),
                place.dtype,
                self._bytes.data,
                place.offset,
            )
            found = torch.from_numpy(array.transpose(np.argsort(place.order)))
        except (ValueError, TypeError, IndexError) as error:
            raise self._worker.fail(
                "protocol", f"the file of values has no whole {name}: {error}"
            ) from error
        return placed(found, self._device)


def placed(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on the device; where it is, if the device has too little memory to judge it."""
    if device.type == "cpu":
        return tensor
    free, _ = torch.cuda.mem_get_info(device)
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    needed = OF_JUDGING * 8 * tensor.numel() + SPARE_BYTES
    return tensor.to(device) if free + unused > needed else tensor


def _inputs(bundle: Bundle, graph: Graph, rate: float) -> Iterator[tuple[str, Tensor]]:
    """The values of the graph's inputs, by name."""
    for item in graph.inputs:
        yield item.value.name, _input(bundle, item, rate)


def _input(bundle: Bundle, item: GraphInput, rate: float) -> Tensor:
    if item.kind in KEPT:
        return torch.zeros(()).expand(item.value.shape)  # takes no memory
    if item.kind == "learning_rate":
        return torch.tensor(rate)
    name, key = "weights", item.target
    if item.kind == "constant":
        name = "constants"
    elif item.kind in ("input", "target"):
        name, key = "batches", f"0/{item.kind}/{item.target}"
    with safe_open(bundle.file(f"{name}.safetensors"), "pt") as tensors:
        found: Tensor = tensors.get_tensor(key)
    return found
