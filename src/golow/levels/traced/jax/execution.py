"""A written step, compiled by XLA for one batch size, with its state on the device."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
from jax.experimental.layout import Format, Layout

from golow.levels.direct.bundle_arrays import Read
from golow.levels.traced.execution import Array, SourceExecution
from golow.levels.traced.jax.level import COMPILED
from golow.levels.traced.lowered import SOURCE
from golow.lower.ir.graph import Graph
from golow.records.workload import Workload


class Execution(SourceExecution):
    """In training the state's memory is given to the next step (donated). On a GPU an iteration is
    enqueued.

    enqueued: arrays that are there when all that was enqueued since `take_enqueued` has ended.
    outputs: shapes and types of those of inference.

    Weights of inference go to the program as one tuple: with a dict JAX sorts the names in each
    call. XLA chooses the layout of each while it compiles: on a GPU it would otherwise transpose
    most of them in each call.
    """

    def __init__(self, folder: Path, graph: Graph, workload: Workload) -> None:
        super().__init__(folder / SOURCE, graph, workload)
        self.rate = jnp.float32(workload.optimizer.learning_rate)
        self.enqueued: list[Any] = []
        self.outputs: tuple[Any, ...] = ()
        self._waits = workload.device == "cpu"
        self._compiled: dict[str, Any] = {}
        self._leaves: tuple[Any, ...] = ()
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

    def load(self, read: Read) -> None:
        """Take the weights, and an optimizer that has made no step."""
        super().load(read)
        self._leaves = tuple(self.weights.values())
        if "infer" in self._compiled:
            self._take_weights()

    def set_steps(self, steps: float) -> None:
        """Set how many steps the optimizer has made."""
        self.state["steps"] = jnp.float32(steps)

    def start_draws(self) -> None:
        """Set the draws to their beginning."""
        self.state["key"] = jax.random.key(self.workload.seed)

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next steps."""
        self.rate = jnp.float32(rate)

    @property
    def scale(self) -> float:
        """The factor of the loss, where it is scaled."""
        return float(self.state["scale"])

    def set_scale(self, scale: float, good_steps: int) -> None:
        """Set the factor of the loss, and the steps since it last changed."""
        self.state["scale"] = jnp.float32(scale)
        self.state["good_steps"] = jnp.int32(good_steps)

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
        """Run an iteration on a batch; on a GPU, enqueue it."""
        if not self.trains:
            self._found_outputs(self._program("infer", batch)(self._leaves, batch))
        elif self.dropout:
            self.state, loss = self._program("train", batch)(self.state, batch, self.rate)
            self.found = {("loss", "loss"): loss}
            self._ran(loss)
        else:
            self.run_captured(batch)

    def run_captured(self, batch: dict[str, Any]) -> None:
        """Run an iteration of which every result can be read."""
        if not self.trains:
            self.run(batch)
            return
        step = self._program("explain", batch)
        self.state, loss, outputs, gradients = step(self.state, batch, self.rate)
        self._found_outputs(outputs)
        self.found[("loss", "loss")] = loss
        self.found |= {("gradient", name): array for name, array in gradients.items()}

    def take_enqueued(self) -> list[Any]:
        """Return `enqueued`, and begin anew."""
        found, self.enqueued = self.enqueued, []
        return found

    def wait(self) -> None:
        """Wait until the state is on the device."""
        jax.block_until_ready(self.state)

    def temporary_bytes(self) -> int | None:
        """Bytes that XLA allocates for an iteration, with those results that take no argument's
        memory."""
        name = "train" if self.trains else "infer"
        if name not in self._compiled:
            return None
        found = self._compiled[name].memory_analysis()
        if found is None:
            return None
        results = found.output_size_in_bytes - found.alias_size_in_bytes
        return int(found.temp_size_in_bytes + max(0, results))

    # ------------------------------------------------------------ implementation

    def _found_outputs(self, outputs: tuple[Any, ...]) -> None:
        self.found = {("output", str(index)): array for index, array in enumerate(outputs)}
        self._ran(outputs[0])

    def _ran(self, result: Any) -> None:
        """All results of a program are there at once, and those before it earlier."""
        self.enqueued = [result]
        if self._waits:
            result.block_until_ready()

    def _program(self, name: str, batch: dict[str, Any]) -> Any:
        if name not in self._compiled:
            with jax.default_matmul_precision(self.module.PRECISION):
                lowered = self._lowered(name, batch)
                self._compiled[name] = lowered.compile()
            if name == "infer":
                self.outputs = lowered.out_info
                self._take_weights()
        return self._compiled[name]

    def _take_weights(self) -> None:
        """Give the weights the layouts that XLA has chosen for the program."""
        [formats, _], _ = self._compiled["infer"].input_formats
        self._leaves = tuple(map(jax.device_put, self._leaves, formats))
        self.state["weight"] = dict(zip(self.weights, self._leaves, strict=True))

    def _lowered(self, name: str, batch: dict[str, Any]) -> Any:
        if name == "infer":
            chosen = (Format(Layout.AUTO), None)
            return jax.jit(self._infer, in_shardings=chosen).lower(self._leaves, batch)
        step = jax.jit(getattr(self, f"_{name}"), donate_argnums=0)
        return step.lower(self.state, batch, self.rate)

    def _infer(self, leaves: Any, batch: Any) -> Any:
        return self.module.forward(dict(zip(self.weights, leaves, strict=True)), batch)

    def _train(self, state: Any, batch: Any, rate: Any) -> Any:
        new, loss, _, _ = self.module.step(state, batch, rate, True)
        return new, loss

    def _explain(self, state: Any, batch: Any, rate: Any) -> Any:
        return self.module.step(state, batch, rate, False)
