"""An artifact as a callable: arrays in, arrays out, without PyTorch."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self
from weakref import WeakSet

import numpy as np

from golow.artifact.array_inputs import ArrayInputs, Arrays
from golow.artifact.container import Container
from golow.artifact.host_arrays import weight_array
from golow.artifact.manifest import MANIFEST, WEIGHTS, Manifest, decoded
from golow.artifact.nesting import nested, tensors_in
from golow.artifact.plans import (
    Room,
    built_plans,
    by_plans_names,
    require_fitting,
    require_runnable,
)
from golow.artifact.stored_check import Recheck, rechecked, stored_inputs
from golow.artifact.tensor_entry import tensors_in_file, tensors_of
from golow.levels.called.forks import forks, require_own_process
from golow.levels.called.memory_overlap import require_apart
from golow.levels.called.sizes import Size, in_words
from golow.levels.called.uncopied import Uncopied
from golow.lower.plan.listing import table_lines
from golow.records.errors import GolowError
from golow.worker.cores import require_threads


class LoadedModule(Uncopied):
    """A saved module with its weights, loaded into this process. Call it like the module, with
    NumPy arrays or tensors on the CPU. It returns tensors if the first input is one, and arrays
    otherwise, nested as the module's output; named tuples and data classes become dicts. manifest:
    the file's manifest. notes: differences from the machine that wrote the file, one sentence each.
    """

    instead = "for another thread: f.context(); for another process: golow.load_compiled, there."

    def __init__(
        self, file: Path, weights: Path | None, threads: int | None, cache: Path | None
    ) -> None:
        """weights: a safetensors file with weights other than the artifact's. threads: of every
        call; by default the number that it was compiled for. Raises `GolowError` for a file that is
        corrupt or not an artifact, for weights that do not fit, and if this machine lacks a
        requirement."""
        container = self._container = Container(file)
        self.manifest: Manifest = decoded(container.read(MANIFEST))
        require_runnable(self.manifest)
        stated = min(self.manifest.threads, os.cpu_count() or 1)
        self._threads = stated if threads is None else threads
        require_threads(self._threads)
        if weights is None and WEIGHTS not in container:
            raise GolowError(
                f"{file} was saved without weights", "name a file of them: weights=FILE."
            )
        if weights is None:
            found = tensors_of(container.mapped(WEIGHTS), WEIGHTS)
        else:
            found = tensors_in_file(weights)
        found = by_plans_names(self.manifest, found)
        require_fitting(self.manifest, found, str(weights or file))
        self._plans = built_plans(container, self.manifest, found, self._threads, cache)
        self.notes = tuple(self._plans.notes)
        self._contexts: WeakSet[LoadedContext] = WeakSet()
        self._call = self.context()

    def __repr__(self) -> str:
        sizes = ", ".join(map(in_words, self._plans.by_size)) or "closed"
        return f"<golow: {self.manifest.model} at {self.manifest.level}, {sizes}>"

    def __call__(self, *given: Any, out: Any = None, **named: Any) -> Any:
        """Run the module, as `LoadedContext.__call__` does."""
        return self._call(*given, out=out, **named)

    def context(self) -> LoadedContext:
        """Return a second memory for iterations, over the same weights, for another thread."""
        self._require_open()
        made = LoadedContext(self.manifest, self._plans.room())
        self._contexts.add(made)
        return made

    def load_weights(self, weights: Mapping[str, Any] | str | Path) -> None:
        """Replace the weights, by name or from a safetensors file, in the same memory; nothing is
        built again. Waits for running calls of all contexts. Raises `GolowError` for weights of
        another module, before anything changes."""
        self._require_open()
        if isinstance(weights, Mapping):
            what, found = "the weights", {k: weight_array(k, v) for k, v in weights.items()}
        else:
            what, found = str(weights), dict(tensors_in_file(Path(weights)))
        found = by_plans_names(self.manifest, found)
        require_fitting(self.manifest, found, what)
        self._plans.loading()
        with ExitStack() as calls:
            for context in self._contexts:
                calls.enter_context(context.held())
            for size, plan in self._plans.by_size.items():
                plan.load(self._plans.reading(size, found))

    def check(self) -> Recheck:
        """Compare the outputs for the example with the module's float64 outputs from when it was
        saved: they may differ by no more than rounding explains. Meaningless with other weights."""
        self._require_open()
        return rechecked(self._container, self.manifest, self.context())

    def example(self) -> list[np.ndarray]:
        """Return the inputs of that check."""
        return stored_inputs(self._container)

    def plan(self, batch: int | None = None, sequence: int = 0) -> str:
        """Return the steps of the plan of a size, one per line; by default of the last size."""
        self._require_open()
        sizes = self._plans.by_size
        size = list(sizes)[-1] if batch is None else (batch, sequence)
        if size not in sizes:
            known = ", ".join(map(in_words, sizes))
            raise GolowError(f"there is no plan for {in_words(size)}", f"this has {known}.")
        return "\n".join(table_lines(sizes[size].plan))

    def memory(self) -> dict[str, int]:
        """Return bytes: ``weights``, once for all sizes and contexts, and ``iteration``, which each
        context has once."""
        plans = self._plans.by_size.values()
        iteration = max((plan.plan.sizes["arena"] for plan in plans), default=0)
        return {"weights": self._plans.bytes_of_weights, "iteration": iteration}

    def close(self) -> None:
        """Release all memory. A later call is an error."""
        for context in self._contexts:
            context.close()
        self._plans.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require_open(self) -> None:
        if not self._plans.by_size:
            raise GolowError("the module is closed")


class LoadedContext(Uncopied):
    """One memory for iterations over the weights of a loaded module. One call may run at a time;
    calls of several contexts may run at once, in several threads."""

    instead = LoadedModule.instead

    def __init__(self, manifest: Manifest, room: Room) -> None:
        self._manifest, self._inputs = manifest, ArrayInputs(manifest)
        self._room: Room | None = room
        self._shapes = {(plan.batch, plan.length): plan.outputs for plan in manifest.plans}
        self._changed = [k for k, form in enumerate(manifest.inputs) if form.changed]
        self._lock, self._forks = threading.Lock(), len(forks)

    def __call__(self, *given: Any, out: Any = None, **named: Any) -> Any:
        """Run the module on its inputs and return its outputs. out: memory for the outputs, with
        the same nesting; batch and length must then be compiled sizes. Raises `GolowError` for
        inputs that do not fit.
        """
        if not self._lock.acquire(blocking=False):
            raise GolowError(
                "another thread is calling this context",
                "give each thread its own context: f.context().",
            )
        try:
            return self._called(given, out, named)
        finally:
            self._lock.release()

    def _called(self, given: Sequence[Any], out: Any, named: Mapping[str, Any]) -> Any:
        if self._room is None:
            raise GolowError("the module is closed")
        require_own_process(self._forks, "the module was loaded")
        ordered = self._inputs.ordered(given, named)
        arrays = self._room.arrays(ordered)
        inputs, found = self._inputs.fitting(ordered, arrays)
        size = self._inputs.size_for(found)
        if size != found:
            inputs = self._inputs.padded(inputs, found, size, arrays)
        forms = list(zip(self._shapes[size], self._manifest.outputs, strict=True))
        if out is None:
            outputs = [arrays.new(shape, form.dtype) for shape, form in forms]
        else:
            outputs = self._given(out, found, size, arrays)
            spans = [[(arrays.address(x), x.nbytes) for x in items] for items in (inputs, outputs)]
            require_apart(*spans)
        changes = [
            arrays.new(tuple(inputs[place].shape), self._manifest.inputs[place].dtype)
            for place in self._changed
        ]
        self._room.run(size, inputs, [*outputs, *changes], arrays)
        for place, change in zip(self._changed, changes, strict=True):
            label = self._manifest.inputs[place].label
            arrays.copy(change, arrays.taken(label, ordered[place]))
        if out is not None:
            return out
        wanted = [
            arrays.returned(self._cut(place, item, found, size, arrays), ordered[0])
            for place, item in enumerate(outputs)
        ]
        return nested(self._manifest.nest, wanted)

    def _given(self, out: Any, found: Size, size: Size, arrays: Arrays) -> list[Any]:
        if found != size:
            raise GolowError(
                f"out= needs a size that was compiled for, and {in_words(found)} is padded to "
                f"{in_words(size)}"
            )
        try:
            tensors = tensors_in(self._manifest.nest, out)
        except ValueError as error:
            raise GolowError(f"out does not have the structure of the output: {error}") from error
        taken = []
        for place, shape in enumerate(self._shapes[size]):
            array = arrays.taken(f"output {place} of out", tensors[place])
            dtype = self._manifest.outputs[place].dtype
            fits = tuple(array.shape) == shape and arrays.type_of(array) == dtype
            if not fits or not arrays.is_plain(array):
                raise GolowError(
                    f"output {place} of out must be a row-major array in this machine's byte "
                    f"order, that can be written, {'x'.join(map(str, shape))} of {dtype}"
                )
            taken.append(array)
        return taken

    def _cut(self, place: int, output: Any, found: Size, size: Size, arrays: Arrays) -> Any:
        """An output without padding."""
        if found[0] != size[0]:
            output = arrays.part(output, 0, output.shape[0] * found[0] // size[0])
        if found[1] != size[1]:
            for axis in self._manifest.outputs[place].lengths:
                output = arrays.part(output, axis, found[1])
        return output

    @contextmanager
    def held(self) -> Iterator[None]:
        """Wait for the running call, and block new ones meanwhile."""
        with self._lock:
            yield

    def close(self) -> None:
        """Release the memory. A later call is an error."""
        with self._lock:
            self._room = None
