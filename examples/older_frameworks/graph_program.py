"""A worker that runs the captured graph of an image network, operation by operation, in a framework
in a separate environment. Needs golow's sources and NumPy; no PyTorch.

A framework is a subclass of `GraphExecution`: its functions by ATen's names, and its gradients.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from golow.levels.direct import bundle_arrays
from golow.levels.direct.bundle_arrays import Batch
from golow.levels.traced.execution import Array, SourceExecution
from golow.levels.traced.forward import forward_of_training
from golow.levels.traced.program import SourceProgram
from golow.levels.traced.updates import update_source
from golow.levels.traced.writer import trained_parameters
from golow.lower.ir.graph import Graph, Node, Ref
from golow.records.errors import GolowError, Unsupported
from golow.records.workload import Workload
from golow.worker.cores import keep_to
from golow.worker.protocol import LoadReport
from golow.worker.serve import run

Functions = Mapping[str, Callable[..., Any]]


class Transposed:
    """A weight that a product reads the other way round."""

    def __init__(self, weight: Any) -> None:
        self.weight = weight


class GraphExecution(SourceExecution):
    """One training step. module: what has ``square``, ``sqrt`` and ``expm1`` of arrays."""

    name = ""
    module: Any

    def __init__(self, graph: Graph, workload: Workload) -> None:
        self.graph, self.workload, self.trains = graph, workload, True
        self.held: dict[str, tuple[int, ...]] = {}
        values = graph.values()
        self.dtypes = {(o.kind, o.target): values[o.name].dtype for o in graph.outputs}
        self.dtypes |= {(i.kind, i.target): i.value.dtype for i in graph.inputs}
        self.trained = trained_parameters(graph)
        self.built = self._built()
        self.state: dict[str, Any] = {}
        self.found: dict[tuple[str, str], Any] = {}
        self.dropout, self.rate = True, workload.optimizer.learning_rate
        self.functions = self.aten() | {"aten.t.default": Transposed}
        names: dict[str, Any] = {"math": math, "golow": self.module}
        exec(update_source(workload.optimizer, "golow"), names)  # noqa: S102 - golow's own text
        self._update: Callable[..., dict[str, Any]] = names["update"]
        for node in graph.nodes:
            self._require(node)

    # ------------------------------------------------------------ what a framework does

    def aten(self) -> dict[str, Callable[..., Any]]:
        """The framework's functions by ATen's names, with ATen's positional arguments."""
        raise NotImplementedError

    def differentiated(self, forward: Callable[[], Any]) -> Any:
        """Run ``forward``, which returns the loss, and make the gradients of all parameters."""
        raise NotImplementedError

    def gradient(self, parameter: Any) -> Any:
        """The gradient of a parameter, as what the update computes with."""
        raise NotImplementedError

    def values(self, parameter: Any) -> Any:
        """The numbers of a parameter, as what the update computes with."""
        return parameter

    def assign(self, kind: str, name: str, value: Any) -> None:
        """Change a tensor of the state in place."""
        raise NotImplementedError

    def wait(self) -> None:
        """Wait until all is computed."""

    # ------------------------------------------------------------ the step

    def set_steps(self, steps: float) -> None:
        """Set how many steps the optimizer has made."""
        self.state["steps"] = self.put(self._number(steps))

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next steps."""
        self.rate = rate

    def compile(self, batch: dict[str, Any]) -> float:
        """There is nothing to compile."""
        return 0.0

    def temporary_bytes(self) -> int | None:
        """Not known."""
        return None

    def run_captured(self, batch: dict[str, Any]) -> None:
        """Every iteration keeps its results."""
        self.run(batch)

    def run(self, batch: dict[str, Any]) -> None:
        """One training step on a batch."""
        values: dict[str, Any] = {}

        def forward() -> Any:
            self._forward(values, batch)
            [loss] = (item.name for item in self.graph.outputs if item.kind == "loss")
            return values[loss]

        loss = self.differentiated(forward)
        self.found = {("loss", "loss"): loss}
        for item in self.graph.outputs:
            if item.kind == "output":
                self.found["output", item.target] = values[item.name]
        if self.workload.optimizer.counts_steps:
            self.state["steps"] = self.state["steps"] + 1
        for name in self.trained:
            self._step(name)
        for item in self.graph.outputs:
            if item.kind == "buffer":
                self.assign("buffer", item.target, values[item.name])
        self.wait()

    def _step(self, name: str) -> None:
        parameter = self.state["parameter"][name]
        gradient = self.gradient(parameter)
        self.found["gradient", name] = gradient * 1
        kept = {kind: self.state[kind][name] for kind in self._kept()}
        numbers = self.values(parameter)
        changed = self._update(kept, numbers, gradient, self.rate, self.state["steps"])
        for kind, value in changed.items():
            self.assign(kind, name, value)

    def _forward(self, values: dict[str, Any], batch: dict[str, Any]) -> None:
        for item in self.graph.inputs:
            key = (item.kind, item.target)
            held = batch if item.kind in ("input", "target") else self.state[self._place(key)]
            name = f"{item.kind}/{item.target}" if held is batch else item.target
            values[item.value.name] = held[name]
        for node in self.graph.nodes:
            given = [values[a.name] if isinstance(a, Ref) else a for a in node.arguments]
            found = self.functions[node.op](*given)
            results = found if len(node.outputs) > 1 else (found,)
            for output, result in zip(node.outputs, results, strict=False):
                if output is not None:
                    values[output.name] = result

    def _require(self, node: Node) -> None:
        if node.op not in self.functions:
            raise Unsupported(self.name, f"{node.op} is not implemented", node.name, node.module)

    def _number(self, number: float) -> Array:
        import numpy as np

        return np.array([number], np.float32)


class GraphProgram(SourceProgram):
    """A training step of the bundle's graph."""

    def __init__(self, execution: type[GraphExecution]) -> None:
        super().__init__()
        self._type, self.level = execution, execution.name

    def load(self, bundle: Path) -> LoadReport:
        """Read the graph and the weights."""
        start = time.perf_counter()
        if not (bundle / "graph.json").exists():
            raise GolowError(
                "the bundle has no graph", "compare with a level that captures it: jax"
            )
        [(_, graph), *_] = self.begin(bundle, [bundle / "graph.json"])
        if not self.train or self.workload.optimizer.clip is not None:
            raise Unsupported(self.level, "it trains, without clipping")
        self.graph = forward_of_training(graph)
        self._arrays: list[Batch] = bundle_arrays.batches(self.bundle, self.workload.batches)
        self.execution = self._type(self.graph, self.workload)
        self._batches = [self.execution.put_batch(batch) for batch in self._arrays]
        self.reset()
        return LoadReport(phases={"load": time.perf_counter() - start})


def serve(execution: type[GraphExecution]) -> None:
    """Answer golow's requests, on as many hardware threads as golow states."""
    keep_to(int(os.environ["OMP_NUM_THREADS"]))
    run(lambda: GraphProgram(execution))
