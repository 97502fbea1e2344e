"""A written step, compiled by XLA for one batch size, with its state on the device."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from golow.levels.jax import COMPILED, SOURCE
from golow.levels.jax.writer import derived_nodes, trained_parameters
from golow.levels.vendor.bundle_arrays import Batch, Read
from golow.levels.vendor.weight_arithmetic import ARITHMETIC
from golow.lower.graph import Graph
from golow.lower.operator import record_of, references
from golow.record import Workload

Key = tuple[str, str]  # kind and target
Array = np.ndarray


class Built(NamedTuple):
    """The keys of what an execution holds, and of its results."""

    inputs: dict[Key, Key]
    outputs: dict[Key, Key]


class Execution:
    """Runs one program: ``infer``, or ``train`` and, for the check, ``explain``, which is the same
    step without random layers and returns outputs and gradients too.

    state: in training what a step takes and returns, on the device; its memory is given to the next
    one (donated). In inference the weights.
    """

    def __init__(self, folder: Path, graph: Graph, workload: Workload) -> None:
        self.graph, self.workload = graph, workload
        self.trains = workload.mode == "train"
        self.module = _imported(folder / SOURCE)
        self.held: dict[str, tuple[int, ...]] = self.module.HELD
        self.dtypes = _dtypes(graph)
        self.trained = trained_parameters(graph)
        self.built = self._built()
        self.state: dict[str, Any] = {}
        self.found: dict[Key, Any] = {}
        self.rate = jnp.float32(workload.optimizer.learning_rate)
        self.dropout = True
        self._compiled: dict[str, Any] = {}
        jax.config.update("jax_compilation_cache_dir", str(folder / COMPILED))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

    # ------------------------------------------------------------ state

    def load(self, read: Read) -> None:
        """Take the weights, and an optimizer that has made no step."""
        if not self.trains:
            self.state = self._weights(read)
            return
        self.state = {kind: {} for kind in ("parameter", "buffer", *self._kept())}
        self.forget()
        for kind, target in self.built.inputs:
            if kind in ("parameter", "buffer", "constant"):
                self.write((kind, target), read(kind, target))

    def forget(self) -> None:
        """Set what the optimizer keeps to zero, and the draws to their beginning."""
        for kind in self._kept():
            self.state[kind] = {}
        for kind, target in self.built.inputs:
            if kind in self._kept():
                self.state[kind][target] = jnp.zeros(self._shape(target), jnp.float32)
        self.state["steps"] = jnp.float32(0)
        self.state["key"] = jax.random.key(self.workload.seed)

    def write(self, key: Key, array: Array) -> None:
        """Put an array into the state."""
        kind, target = key
        if kind == "steps":
            self.state["steps"] = jnp.float32(array.reshape(()))
            return
        self.state[self._place(key)][target] = self.put(self._held_key(key), array)

    def read(self, key: Key) -> Array:
        """Return an array of the state as PyTorch has it."""
        kind, target = key
        if kind == "steps":
            return np.asarray(self.state["steps"])
        return self._taken(key, self.state[self._place(key)][target])

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next steps."""
        self.rate = jnp.float32(rate)

    def take_state(self, other: Execution) -> None:
        """Continue from the state of another execution."""
        self.state, other.state = other.state, {}

    # ------------------------------------------------------------ running

    def put(self, name: str, array: Array) -> Any:
        """Return the array on the device, in the order of axes in which it is held there."""
        order = self.held.get(name)
        given = array if order is None else np.transpose(array, order)
        # A copy: on a CPU, JAX may otherwise use the memory of the file that was read.
        return jax.device_put(np.array(given, order="C"))

    def put_batch(self, batch: Batch) -> dict[str, Any]:
        """Return a batch on the device."""
        return {f"{k}/{t}": self.put(f"{k}/{t}", array) for (k, t), array in batch.items()}

    def compile(self, batch: dict[str, Any]) -> float:
        """Compile what is timed; return the seconds."""
        start = time.perf_counter()
        self._program("train" if self.trains else "infer", batch)
        return time.perf_counter() - start

    def run(self, batch: dict[str, Any]) -> None:
        """Run an iteration on a batch, and wait for it."""
        if not self.trains:
            self.result_of(self._program("infer", batch)(self.state, batch))
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

    def result(self, key: Key) -> Array:
        """Return a result of the last iteration as PyTorch has it."""
        return self._taken(key, self.found[key])

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
                lowered = jax.jit(self.module.forward).lower(self.state, batch)
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

    def _weights(self, read: Read) -> dict[str, Any]:
        """The weights of inference, with those that are derived from others by NumPy."""
        named = {i.value.name: (i.kind, i.target) for i in self.graph.inputs}
        derived: dict[str, Array] = {}

        def value(name: str) -> Array:
            return derived[name] if name in derived else read(*named[name])

        for node in derived_nodes(self.graph):
            record = record_of(node)
            assert record is not None  # noqa: S101
            given = {field: getattr(record, field) for field in record.__struct_fields__}
            given |= {field: value(ref.name) for field, ref in references(record).items()}
            [output] = node.outputs
            assert output is not None  # noqa: S101
            derived[output.name] = ARITHMETIC[node.op](**given)
        read_again = {
            name
            for node in self.graph.nodes
            if node.op not in ARITHMETIC
            for name in node.references()
        } | {item.name for item in self.graph.outputs}
        found = {n: self.put(f"derived/{n}", a) for n, a in derived.items() if n in read_again}
        for name, (kind, target) in named.items():
            if kind not in ("input", "target") and name in read_again:
                found[target] = self.put(f"{kind}/{target}", read(kind, target))
        return found

    def _built(self) -> Built:
        inputs: list[Key] = [(i.kind, i.target) for i in self.graph.inputs]
        outputs: list[Key] = [(o.kind, o.target) for o in self.graph.outputs]
        if self.trains:
            kept = [(kind, name) for kind in self._kept() for name in self.trained]
            if self.workload.optimizer.counts_steps:
                kept.append(("steps", "steps"))
            inputs += kept
            outputs += [("gradient", name) for name in self.trained] + kept
        return Built({key: key for key in inputs}, {key: key for key in outputs})

    def _kept(self) -> tuple[str, ...]:
        return self.workload.optimizer.keeps

    def _place(self, key: Key) -> str:
        """Where the state has it: what no step differentiates is beside the buffers."""
        kind, target = key
        if kind == "constant" or (kind == "parameter" and target not in self.trained):
            return "buffer"
        return kind

    def _held_key(self, key: Key) -> str:
        """What belongs to a parameter is held as the parameter is."""
        kind, target = key
        return f"parameter/{target}" if kind in ("gradient", *self._kept()) else f"{kind}/{target}"

    def _shape(self, target: str) -> tuple[int, ...]:
        shape = next(
            i.value.shape for i in self.graph.inputs if (i.kind, i.target) == ("parameter", target)
        )
        order = self.held.get(f"parameter/{target}")
        return shape if order is None else tuple(shape[axis] for axis in order)

    def _taken(self, key: Key, given: Any) -> Array:
        array = np.asarray(given)
        order = self.held.get(self._held_key(key))
        if order is not None and key[0] != "output":
            array = np.transpose(array, np.argsort(order))
        dtype = self.dtypes.get(key, "float32")
        return np.array(array, dtype=dtype, order="C")


def _dtypes(graph: Graph) -> dict[Key, str]:
    """PyTorch's types of what is read: JAX has integers of 32 bits."""
    values = graph.values()
    found = {(o.kind, o.target): values[o.name].dtype for o in graph.outputs}
    return found | {(i.kind, i.target): i.value.dtype for i in graph.inputs}


def _imported(file: Path) -> ModuleType:
    specification = importlib.util.spec_from_file_location("golow_step", file)
    assert specification is not None and specification.loader is not None  # noqa: S101
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
