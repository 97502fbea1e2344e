"""A written step, compiled by XLA for one batch size, with its state on the device."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp

from golow.levels.jax import COMPILED
from golow.levels.sources.execution import Array, SourceExecution
from golow.levels.sources.lowered import SOURCE
from golow.lower.graph import Graph
from golow.record import Workload


class Execution(SourceExecution):
    """In training the state's memory is given to the next step (donated)."""

    def __init__(self, folder: Path, graph: Graph, workload: Workload) -> None:
        super().__init__(folder / SOURCE, graph, workload)
        self.rate = jnp.float32(workload.optimizer.learning_rate)
        self._compiled: dict[str, Any] = {}
        jax.config.update("jax_compilation_cache_dir", str(folder / COMPILED))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

    # ------------------------------------------------------------ state

    def put(self, array: Array) -> Any:
        """Return the array on the device. It must be a copy: on a CPU, JAX may use its memory."""
        return jax.device_put(array)

    def store(self, kind: str, name: str, array: Array) -> None:
        """Put an array into the state."""
        self.state.setdefault(kind, {})[name] = self.put(array)

    def set_steps(self, steps: float) -> None:
        """Set how many steps the optimizer has made."""
        self.state["steps"] = jnp.float32(steps)

    def start_draws(self) -> None:
        """Set the draws to their beginning."""
        self.state["key"] = jax.random.key(self.workload.seed)

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next steps."""
        self.rate = jnp.float32(rate)

    def take_state(self, other: Self) -> None:
        """Continue from the state of another execution."""
        self.state, other.state = other.state, {}

    # ------------------------------------------------------------ running

    def compile(self, batch: dict[str, Any]) -> float:
        """Compile what is timed; return the seconds."""
        start = time.perf_counter()
        self._program("train" if self.trains else "infer", batch)
        return time.perf_counter() - start

    def run(self, batch: dict[str, Any]) -> None:
        """Run an iteration on a batch, and wait for it."""
        if not self.trains:
            self.result_of(self._program("infer", batch)(self.weights, batch))
            return
        if not self.dropout:
            self.run_captured(batch)
            return
        self.state, loss = self._program("train", batch)(self.state, batch, self.rate)
        self.found = {("loss", "loss"): jax.block_until_ready(loss)}
        jax.block_until_ready(self.state["parameter"])

    def run_captured(self, batch: dict[str, Any]) -> None:
        """Run an iteration of which every result can be read."""
        if not self.trains:
            self.run(batch)
            return
        step = self._program("explain", batch)
        self.state, loss, outputs, gradients = step(self.state, batch, self.rate)
        self.result_of(outputs)
        self.found[("loss", "loss")] = loss
        self.found |= {("gradient", name): array for name, array in gradients.items()}

    def result_of(self, outputs: tuple[Any, ...]) -> None:
        """Remember the outputs of an iteration, which are then ready."""
        jax.block_until_ready(outputs)
        self.found = {("output", str(index)): array for index, array in enumerate(outputs)}

    def temporary_bytes(self) -> int | None:
        """What XLA allots to an iteration beside its arguments and results."""
        name = "train" if self.trains else "infer"
        if name not in self._compiled:
            return None
        found = self._compiled[name].memory_analysis()
        return None if found is None else int(found.temp_size_in_bytes)

    # ------------------------------------------------------------ implementation

    def _program(self, name: str, batch: dict[str, Any]) -> Any:
        if name not in self._compiled:
            if name == "infer":
                lowered = jax.jit(self.module.forward).lower(self.weights, batch)
            else:
                step = jax.jit(getattr(self, f"_{name}"), donate_argnums=0)
                lowered = step.lower(self.state, batch, self.rate)
            self._compiled[name] = lowered.compile()
        return self._compiled[name]

    def _train(self, state: Any, batch: Any, rate: Any) -> Any:
        new, loss, _, _ = self.module.step(state, batch, rate, True)
        return new, loss

    def _explain(self, state: Any, batch: Any, rate: Any) -> Any:
        return self.module.step(state, batch, rate, False)
