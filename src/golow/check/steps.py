"""Checks the operations of a direct level's plan one by one, with the values that its worker hands
over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from golow.check.rounding import Rounding
from golow.check.step_rule import judged, summary
from golow.check.step_values import step_values
from golow.lower.ir.graph import Graph, GraphInput, decode_graph
from golow.records.comparison import StepError, StepsCheck
from golow.records.workload import KEPT
from golow.worker.client import Worker
from golow.worker.protocol import GRAPH_OF_VALUES, ValuesReport
from golow.workload.bundle import Bundle

WINDOW_BYTES = 1 << 29
"""Of values that a worker writes at once."""


def verify_steps(
    worker: Worker, bundle: Bundle, learning_rate: float, working: Rounding, folder: Path
) -> StepsCheck:
    """Judge every operation of one iteration on the first batch, from the bundle's weights. Raises
    `Unsupported` for a worker without a plan, and what asking a worker raises."""
    return summary(step_errors(worker, bundle, learning_rate, working, folder))


def step_errors(
    worker: Worker, bundle: Bundle, learning_rate: float, working: Rounding, folder: Path
) -> Iterator[StepError]:
    """Yield the error of each result, in the order in which they are made."""
    values = _HandedOver(worker, learning_rate, folder)
    try:
        inputs = dict(_inputs(bundle, values.graph, learning_rate))
        for value in step_values(values.graph, inputs, values):
            yield judged(value, working, values.stored[value.name])
    finally:
        values.close()


class _HandedOver:
    """The level's values, a window of nodes at a time. Later windows are asked for when they are
    needed; nothing of the earlier ones is read then."""

    def __init__(self, worker: Worker, learning_rate: float, folder: Path) -> None:
        self._worker, self._rate = worker, learning_rate
        self._file = folder / "values.safetensors"
        self.stored: dict[str, str] = {}
        self._following: int | None = 0
        self._take()
        with safe_open(self._file, "pt") as file:
            self.graph: Graph = decode_graph(file.metadata()[GRAPH_OF_VALUES].encode())

    def __call__(self, position: int, name: str) -> Tensor | None:
        """The value of that name, of the node at that position."""
        while self._following is not None and position >= self._following:
            self._take()
        if name not in self.stored:
            return None
        with safe_open(self._file, "pt") as file:
            found: Tensor = file.get_tensor(name)
        return found

    def close(self) -> None:
        """Remove the file."""
        self._file.unlink(missing_ok=True)

    def _take(self) -> None:
        first = self._following or 0
        report: ValuesReport = self._worker.values(0, self._rate, first, WINDOW_BYTES, self._file)
        self.stored |= report.stored
        self._following = report.following


def _inputs(bundle: Bundle, graph: Graph, rate: float) -> Iterator[tuple[str, Tensor]]:
    """The values of the graph's inputs, by name."""
    for item in graph.inputs:
        yield item.value.name, _input(bundle, item, rate)


def _input(bundle: Bundle, item: GraphInput, rate: float) -> Tensor:
    if item.kind in KEPT:
        return torch.zeros(item.value.shape)
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
