"""A written step in Paddle's dynamic graph, its forward pass as a static graph if that is wanted,
with its state in tensors."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Self

import numpy as np
import paddle

from golow.levels.traced.execution import Array, SourceExecution
from golow.levels.traced.lowered import SOURCE
from golow.lower.ir.graph import Graph
from golow.records.workload import Workload


class Execution(SourceExecution):
    """static: whether ``forward`` becomes a static graph, as `paddle.jit.to_static` makes it; in
    training its gradients then do, too, and the update stays dynamic."""

    def __init__(self, folder: Path, graph: Graph, workload: Workload, static: bool) -> None:
        super().__init__(folder / SOURCE, graph, workload)
        self._static = static
        if static:
            static_forward = paddle.jit.to_static(self.module.forward, full_graph=True)
            setattr(self.module, "forward", static_forward)  # noqa: B010 - `step` calls it
        self.set_rate(workload.optimizer.learning_rate)

    # ------------------------------------------------------------ state

    def put(self, array: Array) -> Any:
        """Return the array as a tensor, which has a copy of it."""
        return paddle.to_tensor(array)

    def store(self, kind: str, name: str, array: Array) -> None:
        """Put an array into the state."""
        tensor = self.put(array)
        tensor.stop_gradient = kind != "parameter"
        self.state.setdefault(kind, {})[name] = tensor

    def set_steps(self, steps: float) -> None:
        """Set how many steps the optimizer has made."""
        self.state["steps"] = self.put(np.array(steps, np.float32))

    def start_draws(self) -> None:
        """Set the draws to their beginning."""
        paddle.seed(self.workload.seed)

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next steps."""
        self.rate = self.put(np.array(rate, np.float32))

    def take_state(self, other: Self) -> None:
        """Continue from the state of another execution."""
        self.state, other.state = other.state, {}

    # ------------------------------------------------------------ running

    def compile(self, batch: dict[str, Any]) -> float:
        """Make the static graph, and run it once: Paddle makes it when a function first runs.
        Return the seconds; nothing is made of a dynamic graph."""
        if not self._static:
            return 0.0
        start = time.perf_counter()
        self.run(batch)
        return time.perf_counter() - start

    def run(self, batch: dict[str, Any]) -> None:
        """Run an iteration on a batch; on a CPU the call returns when it has ended."""
        if not self.trains:
            with paddle.no_grad():
                self._remember(self.module.forward(self.weights, batch))
        elif self.dropout:
            self.state, loss, _, _ = self.module.step(self.state, batch, self.rate, True)
            self.found = {("loss", "loss"): loss}
        else:
            self.run_captured(batch)

    def run_captured(self, batch: dict[str, Any]) -> None:
        """Run an iteration of which every result can be read."""
        if not self.trains:
            self.run(batch)
            return
        step = self.module.step(self.state, batch, self.rate, False)
        self.state, loss, outputs, gradients = step
        self._remember(outputs)
        self.found[("loss", "loss")] = loss
        self.found |= {("gradient", name): each for name, each in gradients.items()}

    def temporary_bytes(self) -> int | None:
        """Paddle does not tell it on a CPU."""
        return None

    # ------------------------------------------------------------ implementation

    def _remember(self, outputs: tuple[Any, ...]) -> None:
        self.found = {("output", str(index)): each for index, each in enumerate(outputs)}
