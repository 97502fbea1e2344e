"""A written step for one batch size, with its state: what is the same in every framework."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Self

import numpy as np
from ml_dtypes import bfloat16

from golow.levels.direct.bundle_arrays import Batch, Read
from golow.levels.direct.weight_arithmetic import computed
from golow.levels.traced.widening import HALF_TYPES, is_cast
from golow.levels.traced.writer import derived_nodes, trained_parameters
from golow.lower.ir.graph import Graph
from golow.lower.ir.operator import record_of
from golow.records.workload import Workload

Key = tuple[str, str]  # kind and target
Array = np.ndarray


class Built(NamedTuple):
    """The keys of what an execution holds, and of its results."""

    inputs: dict[Key, Key]
    outputs: dict[Key, Key]


class SourceExecution:
    """Runs one program: ``infer``, or ``train`` and, for the check, ``explain``, which is the same
    step without random layers and returns outputs and gradients too.

    state: by kind and name. In training what a step takes and returns: parameters, buffers and what
    the optimizer keeps; in inference the weights. found: the results of the last iteration.
    """

    def __init__(self, source: Path, graph: Graph, workload: Workload) -> None:
        self.graph, self.workload = graph, workload
        self.trains = workload.mode == "train"
        self.module = _imported(source)
        self.held: dict[str, tuple[int, ...]] = self.module.HELD
        self.dtypes = _dtypes(graph)
        self.trained = trained_parameters(graph)
        self.built = self._built()
        self.state: dict[str, Any] = {}
        self.found: dict[Key, Any] = {}
        self.dropout = True

    # ------------------------------------------------------------ what a framework does

    def put(self, array: Array) -> Any:
        """Return the array on the device."""
        raise NotImplementedError

    def store(self, kind: str, name: str, array: Array) -> None:
        """Put an array into the state."""
        raise NotImplementedError

    def set_steps(self, steps: float) -> None:
        """Set how many steps the optimizer has made."""
        raise NotImplementedError

    def start_draws(self) -> None:
        """Set the draws to their beginning."""
        raise NotImplementedError

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next steps."""
        raise NotImplementedError

    def take_state(self, other: Self) -> None:
        """Continue from the state of another execution."""
        raise NotImplementedError

    def compile(self, batch: dict[str, Any]) -> float:
        """Compile what is timed; return the seconds."""
        raise NotImplementedError

    def run(self, batch: dict[str, Any]) -> None:
        """Run an iteration on a batch, and wait for it."""
        raise NotImplementedError

    def run_captured(self, batch: dict[str, Any]) -> None:
        """Run an iteration of which every result can be read."""
        raise NotImplementedError

    def temporary_bytes(self) -> int | None:
        """Bytes that an iteration allocates besides its arguments and results, if the framework
        reports it."""
        raise NotImplementedError

    # ------------------------------------------------------------ state

    def load(self, read: Read) -> None:
        """Take the weights, and an optimizer that has made no step."""
        if not self.trains:
            for name, array in self._weights(read):
                self.store("weight", name, array)
            return
        self.forget()
        for kind, target in self.built.inputs:
            if kind in ("parameter", "buffer", "constant"):
                self.write((kind, target), read(kind, target))

    @property
    def weights(self) -> dict[str, Any]:
        """The weights of inference, by name; a model may have none."""
        found: dict[str, Any] = self.state.get("weight", {})
        return found

    def forget(self) -> None:
        """Set what the optimizer keeps to zero, and the draws to their beginning."""
        for kind in ("parameter", "buffer", *self._kept()):
            self.state.setdefault(kind, {})
        for kind, target in self.built.inputs:
            if kind in self._kept():
                self.store(kind, target, np.zeros(self._shape(target), np.float32))
        self.set_steps(0)
        self.start_draws()

    def write(self, key: Key, array: Array) -> None:
        """Put an array, as PyTorch has it, into the state."""
        if key[0] == "steps":
            self.set_steps(float(array.reshape(())))
        else:
            self.store(self._place(key), key[1], self.arranged(self._held_key(key), array))

    def read(self, key: Key) -> Array:
        """Return an array of the state as PyTorch has it."""
        kind, target = key
        if kind == "steps":
            return np.asarray(self.state["steps"])
        return self.taken(key, self.state[self._place(key)][target])

    def result(self, key: Key) -> Array:
        """Return a result of the last iteration as PyTorch has it."""
        return self.taken(key, self.found[key])

    def put_batch(self, batch: Batch) -> dict[str, Any]:
        """Return a batch on the device."""
        names = {f"{kind}/{target}": array for (kind, target), array in batch.items()}
        return {name: self.put(self.arranged(name, array)) for name, array in names.items()}

    def arranged(self, name: str, array: Array) -> Array:
        """Return a copy in the order of axes in which a worker holds it."""
        order = self.held.get(name)
        return np.array(array if order is None else np.transpose(array, order), order="C")

    # ------------------------------------------------------------ implementation

    def _weights(self, read: Read) -> Iterator[tuple[str, Array]]:
        """The weights of inference, with those that are derived from others by NumPy."""
        named = {i.value.name: (i.kind, i.target) for i in self.graph.inputs}
        derived: dict[str, Array] = {}

        def value(name: str) -> Array:
            return derived[name] if name in derived else read(*named[name])

        nodes = derived_nodes(self.graph)
        for node in nodes:
            record = record_of(node)
            [output] = node.outputs
            assert record is not None and output is not None  # noqa: S101
            if is_cast(node):
                [name] = node.references()
                derived[output.name] = value(name).astype(
                    bfloat16 if output.dtype == "bfloat16" else output.dtype
                )
                continue
            derived[output.name] = computed(record, value)
        read_again = {
            name for node in self.graph.nodes if node not in nodes for name in node.references()
        } | {item.name for item in self.graph.outputs}
        for name, array in derived.items():
            if name in read_again:
                yield name, self.arranged(f"derived/{name}", array)
        for name, (kind, target) in named.items():
            if kind not in ("input", "target") and name in read_again:
                yield target, self.arranged(f"{kind}/{target}", read(kind, target))

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
        """Where the state has it: what no step differentiates is with the buffers."""
        kind, target = key
        if kind == "constant" or (kind == "parameter" and target not in self.trained):
            return "buffer"
        return kind

    def _held_key(self, key: Key) -> str:
        """Key of the parameter as which a value belonging to it is held."""
        kind, target = key
        return f"parameter/{target}" if kind in ("gradient", *self._kept()) else f"{kind}/{target}"

    def _shape(self, target: str) -> tuple[int, ...]:
        shape = next(
            i.value.shape for i in self.graph.inputs if (i.kind, i.target) == ("parameter", target)
        )
        order = self.held.get(f"parameter/{target}")
        return shape if order is None else tuple(shape[axis] for axis in order)

    def taken(self, key: Key, given: Any) -> Array:
        """Return a result or a part of the state as PyTorch has it."""
        array = np.asarray(given)
        order = self.held.get(self._held_key(key))
        if order is not None and key[0] != "output":
            array = np.transpose(array, np.argsort(order))
        dtype = self.dtypes.get(key, "float32")
        # Half precision is written as float32, which has all of its numbers.
        return np.array(array, dtype="float32" if dtype in HALF_TYPES else dtype, order="C")


def _dtypes(graph: Graph) -> dict[Key, str]:
    """PyTorch's types of what is read; a framework may have others."""
    values = graph.values()
    found = {(o.kind, o.target): values[o.name].dtype for o in graph.outputs}
    return found | {(i.kind, i.target): i.value.dtype for i in graph.inputs}


def _imported(file: Path) -> ModuleType:
    specification = importlib.util.spec_from_file_location("golow_step", file)
    assert specification is not None and specification.loader is not None  # noqa: S101
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
