"""A written step as a `tf.function`, with its state in variables."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
import tensorflow as tf

from golow.levels.traced.execution import Array, SourceExecution
from golow.levels.traced.lowered import SOURCE
from golow.lower.ir.graph import Graph
from golow.records.workload import Workload


class Execution(SourceExecution):
    """xla: whether XLA compiles it. shared: the variables of another execution, to use as one's
    own: a traced function is bound to its variables."""

    def __init__(
        self,
        folder: Path,
        graph: Graph,
        workload: Workload,
        xla: bool,
        shared: dict[str, Any] | None = None,
    ) -> None:
        _use_threads(workload.threads)
        super().__init__(folder / SOURCE, graph, workload)
        self.state = {} if shared is None else shared
        self._functions: dict[str, Callable[..., Any]] = {
            name: tf.function(function, jit_compile=xla, autograph=False)
            for name, function in (
                ("infer", self._infer),
                ("train", self._train),
                ("explain", self._explain),
            )
        }
        self.set_rate(workload.optimizer.learning_rate)

    # ------------------------------------------------------------ state

    def put(self, array: Array) -> Any:
        """Return the array as a tensor."""
        return tf.constant(array)

    def store(self, kind: str, name: str, array: Array) -> None:
        """Put an array into the variable of that name."""
        variables = self.state.setdefault(kind, {})
        if name in variables:
            variables[name].assign(array)
        else:
            variables[name] = tf.Variable(array, trainable=kind == "parameter")

    def set_steps(self, steps: float) -> None:
        """Set how many steps the optimizer has made."""
        self._set("steps", np.float32(steps))

    def start_draws(self) -> None:
        """Set the draws to their beginning: seed and step are what they are made from."""
        self._set("key", np.array([self.workload.seed % 2**31, 0], np.int32))

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next steps."""
        self.rate = tf.constant(rate, tf.float32)

    def take_state(self, other: Self) -> None:
        """Nothing to do: the executions of one worker share their variables."""
        assert self.state is other.state  # noqa: S101

    # ------------------------------------------------------------ running

    def compile(self, batch: dict[str, Any]) -> float:
        """Trace and compile what is timed, and run it once: TensorFlow compiles when a function
        first runs. Return the seconds."""
        start = time.perf_counter()
        self.run(batch)
        return time.perf_counter() - start

    def run(self, batch: dict[str, Any]) -> None:
        """Run an iteration on a batch; on a CPU the call returns when it has ended."""
        if not self.trains:
            self._remember(self._functions["infer"](batch))
        elif self.dropout:
            self.found = {("loss", "loss"): self._functions["train"](batch, self.rate)}
        else:
            self.run_captured(batch)

    def run_captured(self, batch: dict[str, Any]) -> None:
        """Run an iteration of which every result can be read."""
        if not self.trains:
            self.run(batch)
            return
        loss, outputs, gradients = self._functions["explain"](batch, self.rate)
        self._remember(outputs)
        self.found[("loss", "loss")] = loss
        self.found |= {("gradient", name): each for name, each in gradients.items()}

    def temporary_bytes(self) -> int | None:
        """TensorFlow does not report it on a CPU."""
        return None

    # ------------------------------------------------------------ implementation

    def _infer(self, batch: Any) -> Any:
        return self.module.forward(self.weights, batch)

    def _train(self, batch: Any, rate: Any) -> Any:
        loss, _, _ = self.module.step(self.state, batch, rate, True)
        return loss

    def _explain(self, batch: Any, rate: Any) -> Any:
        return self.module.step(self.state, batch, rate, False)

    def _remember(self, outputs: tuple[Any, ...]) -> None:
        self.found = {("output", str(index)): each for index, each in enumerate(outputs)}

    def _set(self, name: str, value: Any) -> None:
        if name in self.state:
            self.state[name].assign(value)
        else:
            self.state[name] = tf.Variable(value, trainable=False)


def _use_threads(threads: int) -> None:
    """One operator at a time, with this many threads. Once TensorFlow has started, another number
    is refused by it."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
